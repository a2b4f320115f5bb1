//! `steps.csv`: the run's own numbers, and when each step was.

use std::collections::HashMap;
use std::path::Path;

use csv::StringRecord;
use trainmon_core::Step;
use trainmon_exporters::tensorboard::{EventWriter, FACTS, Point, Value};

use super::converted::ConvertedRun;
use super::error::ConvertError;
use crate::run::{Table, ToldNumbers};

/// When each step ended, in seconds since 1970. Of a step made twice the later time.
#[derive(Debug, Default)]
pub(super) struct StepTimes(HashMap<u64, f64>);

impl StepTimes {
    pub(super) fn of(&self, step: u64) -> Option<f64> {
        self.0.get(&step).copied()
    }
}

/// The tag of a column; of one that another version wrote, among those about the monitor.
fn fact_tag(column: &str) -> String {
    let known = FACTS.iter().find(|fact| fact.column == column);
    known.map_or_else(|| format!("monitor/{column}"), |fact| fact.tag.to_owned())
}

/// Writes the numbers of `steps.csv` to `out` and gives back the times.
pub(super) fn convert_facts(
    table: &mut Table,
    out: &Path,
    converted: &mut ConvertedRun,
) -> Result<StepTimes, ConvertError> {
    let (step_column, time_column) = (table.place("step")?, table.place("unix_seconds")?);
    let columns = table.header().iter().enumerate().filter(|(place, _)| ![step_column, time_column].contains(place));
    let facts: Vec<(usize, String)> = columns.map(|(place, column)| (place, fact_tag(column))).collect();
    let mut told = ToldNumbers::default();
    let mut writer = EventWriter::new(out.to_path_buf());
    let (mut times, mut cells) = (StepTimes::default(), StringRecord::new());
    while let Some(row) = table.next(&mut cells)? {
        row.check_length()?;
        let (step, time): (u64, f64) = (row.integer(step_column)?, row.number(time_column)?);
        let mut points = Vec::with_capacity(facts.len());
        told.begin(&row);
        for (place, tag) in &facts {
            if let Some(value) = told.number(&row, *place)? {
                points.push(Point { tag, value: Value::Scalar(value) });
            }
        }
        writer.append(time, Step(step), &points)?;
        converted.values += points.len() as u64;
        converted.saw(step);
        times.0.insert(step, time);
    }
    converted.tags += writer.tags();
    Ok(times)
}
