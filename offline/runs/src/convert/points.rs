//! The rows of tables as points, step by step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trainmon_core::Step;
use trainmon_exporters::tensorboard::{
    EventWriter, Histogram, Point, UPDATE_RATIO_HISTOGRAM, UPDATE_RATIO_LEFT_OUT, Value, tensor_tag,
};

use super::error::ConvertError;
use super::facts::StepTimes;
use super::report::ConvertedRun;
use trainmon_run_files::{ReadRow, RowLayout, RunError, Table, widen};

const UPDATE_RATIO: &str = "update_ratio";
/// Numbers that a script recorded under its own names: these are the tags, beside the run's own numbers.
const SCALAR: &str = "scalar";

/// The layout of a table.
pub(super) struct Kept {
    /// Its columns of numbers.
    values: Vec<(usize, String)>,
    /// The time of the last write, in Unix seconds.
    written: f64,
}

impl Kept {
    pub(super) fn of(table: &Table, layout: &RowLayout) -> Self {
        Self { values: layout.values.clone(), written: table.unix_seconds }
    }
}

/// Converts the rows of one rank's tables; each kind has its own event files.
pub(super) struct KindPoints<'a> {
    out: &'a Path,
    writers: BTreeMap<String, EventWriter>,
    /// The points of the step, by kind.
    step: BTreeMap<String, StepPoints>,
}

#[derive(Default)]
struct StepPoints {
    /// The time at which their table was last written.
    written: f64,
    /// Tags and values.
    points: Vec<(String, f64)>,
}

impl<'a> KindPoints<'a> {
    /// Creates a converter to event files below `out`.
    pub(super) fn new(out: &'a Path) -> Self {
        Self { out, writers: BTreeMap::new(), step: BTreeMap::new() }
    }

    /// Adds a row of the step.
    pub(super) fn take(&mut self, row: &ReadRow<'_, Kept>) -> Result<(), RunError> {
        let ReadRow { of, kept: Kept { values, written }, cells, .. } = row;
        let has_dimensions = of.shape.is_none_or(|shape| shape != "[]");
        let step = self.step.entry(of.kind.to_owned()).or_default();
        step.written = *written;
        for (place, column) in values {
            let value = cells.number(*place)?;
            let is_absent = of.is_empty || (column == "id" && has_dimensions && value.is_nan());
            if !is_absent {
                let tag = match of.kind {
                    SCALAR => of.name.to_owned(),
                    _ => tensor_tag(of.vpp_stage, of.name, of.micro_step, column),
                };
                step.points.push((tag, value));
            }
        }
        Ok(())
    }

    /// Writes the step after all its rows.
    pub(super) fn write(
        &mut self,
        step: u64,
        times: &StepTimes,
        converted: &mut ConvertedRun,
    ) -> Result<(), ConvertError> {
        for (kind, StepPoints { written, points: values }) in std::mem::take(&mut self.step) {
            let mut points: Vec<Point<'_>> =
                values.iter().map(|(tag, value)| Point { tag, value: Value::Scalar(*value) }).collect();
            if kind == UPDATE_RATIO {
                points.extend(distribution(&values));
            }
            converted.values += points.len() as u64;
            widen(&mut converted.steps, step);
            let directory: PathBuf = if kind == SCALAR { self.out.to_path_buf() } else { self.out.join(&kind) };
            let writer = self.writers.entry(kind).or_insert_with(|| EventWriter::new(directory));
            writer.append(times.of(step).unwrap_or(written), Step(step), &points)?;
        }
        Ok(())
    }

    /// Counts the written values.
    pub(super) fn finish(self, converted: &mut ConvertedRun) {
        for (kind, writer) in self.writers {
            converted.tags += writer.tags();
            if kind != SCALAR {
                converted.kinds.push(kind);
            }
        }
    }
}

fn distribution(values: &[(String, f64)]) -> Vec<Point<'static>> {
    let (histogram, left_out) = Histogram::of_ratios(values.iter().map(|(_, ratio)| *ratio));
    let histogram =
        histogram.map(|histogram| Point { tag: UPDATE_RATIO_HISTOGRAM, value: Value::Histogram(histogram) });
    let left_out = Point { tag: UPDATE_RATIO_LEFT_OUT, value: Value::Scalar(left_out as f64) };
    histogram.into_iter().chain([left_out]).collect()
}
