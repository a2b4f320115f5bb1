//! The rows of tables as points, step by step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trainmon_core::{Kind, Reading, Scalar, Statistic, Step, StepBatch, TensorStats, is_number_column};
use trainmon_exporters::tensorboard::{
    EventWriter, Histogram, Point, UPDATE_RATIO_HISTOGRAM, UPDATE_RATIO_LEFT_OUT, Value, tensor_tag,
};

use super::converted::ConvertedRun;
use super::error::ConvertError;
use super::facts::StepTimes;
use crate::steps::StepReader;
use trainmon_run_files::{Row, RowLayout, Table};

const UPDATE_RATIO: &str = "update_ratio";
/// What a script told under names of its own: those are the tags, beside the run's own numbers.
const SCALAR: &str = "scalar";

/// How often progress is told, in rows.
const TELL_EVERY: u64 = 4096;

/// Converts the tables of one prefix: of one kind in V1, of several in V2.
pub(super) struct KindPoints<'a> {
    prefix: &'a str,
    out: &'a Path,
    writers: BTreeMap<String, EventWriter>,
}

/// What a row shows.
struct RowPoints {
    step: u64,
    kind: String,
    /// Tags and values.
    points: Vec<(String, f64)>,
}

/// The points of one step, by kind.
struct StepPoints {
    step: u64,
    by_kind: BTreeMap<String, Vec<(String, f64)>>,
}

impl<'a> KindPoints<'a> {
    /// For event files below `out`.
    pub(super) fn new(prefix: &'a str, out: &'a Path) -> Self {
        Self { prefix, out, writers: BTreeMap::new() }
    }

    /// Converts one table and gives back how many rows were left out.
    pub(super) fn convert(
        &mut self,
        table: &mut Table,
        times: &StepTimes,
        converted: &mut ConvertedRun,
        tell: &mut dyn FnMut(u64),
    ) -> Result<u64, ConvertError> {
        let layout = RowLayout::of(table)?;
        let written = table.unix_seconds;
        let mut pending: Option<StepPoints> = None;
        let (mut rows, mut left_out) = (0, 0);
        loop {
            rows += 1;
            if rows % TELL_EVERY == 0 {
                tell(table.bytes_read());
            }
            let Some(row) = table.next_row()? else { break };
            let Some(RowPoints { step, kind, points }) = self.points(&layout, &row)? else {
                left_out += 1;
                continue;
            };
            if pending.as_ref().is_some_and(|pending| pending.step != step) {
                self.write(pending.take(), times, written, converted)?;
            }
            let pending = pending.get_or_insert_with(|| StepPoints { step, by_kind: BTreeMap::new() });
            pending.by_kind.entry(kind).or_default().extend(points);
        }
        self.write(pending, times, written, converted)?;
        Ok(left_out)
    }

    /// Converts every row of these kinds, with those that the files leave out since others say the same.
    pub(super) fn convert_filled(
        &mut self,
        reader: &mut StepReader,
        kinds: &[Kind],
        times: &StepTimes,
        converted: &mut ConvertedRun,
    ) -> Result<(), ConvertError> {
        let mut batch = StepBatch::default();
        while reader.next(&mut batch)? {
            let mut by_kind: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
            for record in batch.records.iter().filter(|record| kinds.contains(&record.kind)) {
                let usual = reader.config().signal(record.kind).map_or(&[][..], |signal| &signal.ops);
                let ops = batch.ops.as_deref().unwrap_or(usual);
                let info = &reader.names()[record.tensor.index()];
                let Some(stats) = record.reading.as_ref().and_then(Reading::tensor) else { continue };
                let points = ops.iter().filter_map(|&op| {
                    let value = number_of(stats, op)?;
                    Some((tensor_tag(info.vpp_stage, &info.name, None, op.name()), value))
                });
                by_kind.entry(record.kind.name().to_owned()).or_default().extend(points);
            }
            let written = batch.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            self.write(Some(StepPoints { step: batch.step.0, by_kind }), times, written, converted)?;
        }
        Ok(())
    }

    /// Counts what was written.
    pub(super) fn finish(self, converted: &mut ConvertedRun) {
        for (kind, writer) in self.writers {
            converted.tags += writer.tags();
            if kind != SCALAR {
                converted.kinds.push(kind);
            }
        }
    }

    fn points(&self, layout: &RowLayout, row: &Row<'_>) -> Result<Option<RowPoints>, ConvertError> {
        let Some(of) = layout.read(self.prefix, row)? else { return Ok(None) };
        let has_dimensions = of.shape.is_none_or(|shape| shape != "[]");
        let mut points = Vec::with_capacity(layout.values.len());
        for (place, column) in &layout.values {
            let value = row.number(*place)?;
            let is_absent = of.is_empty || (column == "id" && has_dimensions && value.is_nan());
            if !is_absent {
                let tag = match of.kind {
                    SCALAR => of.name.to_owned(),
                    _ => tensor_tag(of.vpp_stage, of.name, of.micro_step, column),
                };
                points.push((tag, value));
            }
        }
        Ok(Some(RowPoints { step: of.step, kind: of.kind.to_owned(), points }))
    }

    fn write(
        &mut self,
        points: Option<StepPoints>,
        times: &StepTimes,
        written: f64,
        converted: &mut ConvertedRun,
    ) -> Result<(), ConvertError> {
        let Some(StepPoints { step, by_kind }) = points else { return Ok(()) };
        let time = times.of(step).unwrap_or(written);
        for (kind, values) in by_kind {
            let mut points: Vec<Point<'_>> =
                values.iter().map(|(tag, value)| Point { tag, value: Value::Scalar(*value) }).collect();
            if kind == UPDATE_RATIO {
                points.extend(distribution(&values));
            }
            converted.values += points.len() as u64;
            converted.saw(step);
            let directory: PathBuf = if kind == SCALAR { self.out.to_path_buf() } else { self.out.join(&kind) };
            let writer = self.writers.entry(kind).or_insert_with(|| EventWriter::new(directory));
            writer.append(time, Step(step), &points)?;
        }
        Ok(())
    }
}

/// What a file's column shows of a reading; `None` for what is no number to draw.
fn number_of(stats: &TensorStats, op: Statistic) -> Option<f64> {
    match op {
        Statistic::Id => stats.id().map(Scalar::as_f64),
        _ => is_number_column(op.name()).then(|| stats.value(op)),
    }
}

fn distribution(values: &[(String, f64)]) -> Vec<Point<'static>> {
    let (histogram, left_out) = Histogram::of_ratios(values.iter().map(|(_, ratio)| *ratio));
    let histogram =
        histogram.map(|histogram| Point { tag: UPDATE_RATIO_HISTOGRAM, value: Value::Histogram(histogram) });
    let left_out = Point { tag: UPDATE_RATIO_LEFT_OUT, value: Value::Scalar(left_out as f64) };
    histogram.into_iter().chain([left_out]).collect()
}
