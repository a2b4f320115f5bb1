//! `steps.csv`: the run's own numbers, and the time of each step.

use std::collections::HashMap;
use std::path::Path;

use trainmon_core::Step;
use trainmon_exporters::tensorboard::{EventWriter, Point, Value, fact_tag};

use super::error::ConvertError;
use super::report::ConvertedRun;
use trainmon_run_files::{LoggedNumbers, STEP_COLUMN, StepColumn, Table, widen};

/// The end of each step, in seconds since 1970.
#[derive(Debug, Default)]
pub(super) struct StepTimes(HashMap<u64, f64>);

impl StepTimes {
    pub(super) fn of(&self, step: u64) -> Option<f64> {
        self.0.get(&step).copied()
    }
}

/// The tag of a column; an unknown one is listed with those of the monitor.
fn tag_of(column: &str) -> String {
    let known = StepColumn::ALL.into_iter().find(|known| known.name() == column);
    known.map_or_else(|| format!("monitor/{column}"), fact_tag)
}

/// Writes the numbers of `steps.csv` to `out` and returns the times. Of repeated steps, the first are read.
pub(super) fn convert_facts(
    table: &mut Table,
    out: &Path,
    converted: &mut ConvertedRun,
    warnings: &mut Vec<String>,
) -> Result<StepTimes, ConvertError> {
    let (step_column, time_column) = (table.place(STEP_COLUMN)?, table.place(StepColumn::UnixSeconds.name())?);
    let columns = table.header().iter().enumerate().filter(|(place, _)| ![step_column, time_column].contains(place));
    let facts: Vec<(usize, String)> = columns.map(|(place, column)| (place, tag_of(column))).collect();
    let mut told = LoggedNumbers::default();
    let mut writer = EventWriter::new(out.to_path_buf());
    let (mut times, mut again) = (StepTimes::default(), None);
    while let Some(row) = table.next_row()? {
        row.check_length()?;
        let (step, time): (u64, f64) = (row.integer(step_column)?, row.number(time_column)?);
        if converted.steps.is_some_and(|(_, last)| step <= last) {
            widen(&mut again, step);
            continue;
        }
        let mut points = Vec::with_capacity(facts.len());
        told.begin(&row);
        for (place, tag) in &facts {
            if let Some(value) = told.number(&row, *place)? {
                points.push(Point { tag, value: Value::Scalar(value) });
            }
        }
        writer.append(time, Step(step), &points)?;
        converted.values += points.len() as u64;
        widen(&mut converted.steps, step);
        times.0.insert(step, time);
    }
    warnings.extend(again.map(|range| table.came_again(range)));
    converted.tags += writer.tags();
    Ok(times)
}
