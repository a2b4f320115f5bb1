//! TensorBoard event files: one run per kind of tensor, and one for the run's own numbers.
//!
//! ```text
//! <directory>/events.out.tfevents.…              loss, learning rate, gradient norm, numbers that the script logs,
//!                                                the monitor's own cost, alerts
//! <directory>/grad_reduced/events.out.tfevents.…  tags like vp0:blocks.0.attn.qkv.weight/norm
//! <directory>/update_ratio/events.out.tfevents.…  the same, and a histogram over the parameters
//! ```
//!
//! Layout and tags are those of msprobe's conversion of CSV files, so that one chart shows a statistic of one tensor
//! with a line per kind. Values are float32, the only scalar of the format.

mod facts;
mod histogram;
mod message;
mod read;
mod record;
mod tags;
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use trainmon_core::config::{Config, Dialect, Plan, TensorBoard};
use trainmon_core::{
    Alert, Kind, Reading, Record, Statistic, StepBatch, StepCalls, TensorInfo, is_number_column, micro_step_column,
};

use self::tags::{TagKey, TagTable};
use self::writer::unix_seconds;
use crate::{ExportError, ExportFailure, Exporter};

pub use self::facts::fact_tag;
use self::facts::facts_of;
pub use self::histogram::Histogram;
pub use self::read::{EventFault, EventReader, ReadEvent, begins_as_events};
pub use self::tags::tensor_tag;
pub use self::writer::{EventWriter, Point, Value};

/// The tag of the distribution of update ratios.
pub const UPDATE_RATIO_HISTOGRAM: &str = "update_ratio_log10";
/// The tag of the number of update ratios excluded from the histogram.
pub const UPDATE_RATIO_LEFT_OUT: &str = "update_ratio_log10_left_out";
/// The tag of the number of tags beyond the limit; written once there are any.
pub const TAGS_LEFT_OUT: &str = "monitor/tags_left_out";
/// The prefix of the rule's name in the tag of an alert.
pub const ALERT_TAG: &str = "alert/";

/// Writes event files, step by step.
pub struct TensorBoardExporter {
    /// The config in effect.
    config: Config,
    /// The plan of the config, after a change during the training.
    plan: Option<Arc<Plan>>,
    directory: PathBuf,
    facts: EventWriter,
    kinds: HashMap<Kind, EventWriter>,
    tags: TagTable,
}

impl TensorBoardExporter {
    /// Prepares to write into this directory. Nothing is created before the first step, so this cannot fail.
    pub fn in_directory(config: &Config, settings: &TensorBoard, directory: PathBuf) -> Self {
        Self {
            config: config.clone(),
            plan: None,
            facts: EventWriter::new(directory.clone()),
            directory,
            kinds: HashMap::new(),
            tags: TagTable::new(settings.max_tags),
        }
    }

    /// The directory of the event files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Applies a plan from this step on.
    fn set_plan(&mut self, plan: &Arc<Plan>) {
        if self.plan.as_ref().is_none_or(|known| !Arc::ptr_eq(known, plan)) {
            self.plan = Some(Arc::clone(plan));
            self.config = self.config.with_plan(plan);
        }
    }

    /// Writes the records of one kind. The failure counts those that were not written.
    fn write_kind(
        &mut self,
        kind: Kind,
        names: &[TensorInfo],
        batch: &StepBatch,
        records: &[&Record],
    ) -> Result<(), ExportFailure> {
        let columns = self.columns(kind, batch);
        let shows_micro_step = micro_step_column(&self.config, kind);
        let first = u32::from(self.config.dialect == Dialect::V2);
        let keyed = records.iter().map(|record| {
            let micro_step = shows_micro_step.then_some(record.micro_step.0 + first);
            (TagKey { kind, tensor: record.tensor, micro_step }, *record)
        });
        let admitted: Vec<(TagKey, &Record)> = keyed
            .filter(|(key, record)| {
                let info = &names[record.tensor.index()];
                self.tags.admit(*key, &columns, info.vpp_stage, &info.name)
            })
            .collect();
        let left_out = records.len() - admitted.len();
        let mut points = Vec::with_capacity(admitted.len() * columns.len() + 2);
        for (key, record) in &admitted {
            // A hook without tensor has no values.
            let Some(reading) = &record.reading else { continue };
            for column in &columns {
                let value = column_value(kind, reading, column);
                points.extend(self.tags.tag(*key, column).zip(value).map(|(tag, value)| scalar(tag, value)));
            }
        }
        if kind == Kind::UpdateRatio {
            points.extend(distribution(records));
        }
        let writer = match kind {
            Kind::Scalar => &mut self.facts,
            _ => self.kinds.entry(kind).or_insert_with(|| EventWriter::new(self.directory.join(kind.name()))),
        };
        let written = writer.append(unix_seconds(batch.time), batch.step, &points);
        written.map_err(|source| ExportFailure { lost_records: records.len() as u64, source })?;
        if left_out == 0 {
            return Ok(());
        }
        let source = ExportError::TooManyTags { max: self.tags.max(), left_out: self.tags.left_out() };
        Err(ExportFailure { lost_records: left_out as u64, source })
    }

    /// The columns of a kind's CSV file that can be shown in TensorBoard.
    fn columns(&self, kind: Kind, batch: &StepBatch) -> Vec<&'static str> {
        let values = kind.value_columns();
        if !values.is_empty() {
            return values.to_vec();
        }
        let configured = self.config.signal(kind).map_or(&[][..], |signal| &signal.ops);
        let ops = batch.ops.as_deref().unwrap_or(configured);
        ops.iter().map(|op| op.name()).filter(|name| is_number_column(name)).collect()
    }

    fn write_facts(&mut self, batch: &StepBatch) -> Result<(), ExportError> {
        let facts = facts_of(batch);
        let mut points: Vec<Point<'_>> = facts.iter().map(|(tag, value)| scalar(tag, *value)).collect();
        if self.tags.left_out() > 0 {
            points.push(scalar(TAGS_LEFT_OUT, self.tags.left_out() as f64));
        }
        self.facts.append(unix_seconds(batch.time), batch.step, &points)
    }
}

impl Exporter for TensorBoardExporter {
    fn name(&self) -> &'static str {
        "tensorboard"
    }

    fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
        if let Some(plan) = &batch.plan {
            self.set_plan(plan);
        }
        let mut total: Option<ExportFailure> = None;
        let all = StepCalls::put_together(&batch.records);
        for kind in Kind::ALL.into_iter().filter(|&kind| self.config.measures(kind)).collect::<Vec<_>>() {
            let records: Vec<&Record> = all.iter().filter(|record| record.kind == kind).collect();
            if records.is_empty() {
                continue;
            }
            if let Err(failure) = self.write_kind(kind, names, batch, &records) {
                add(&mut total, failure);
            }
        }
        // Last, like `steps.csv` of the CSV files: a step in it has been written completely.
        if let Err(source) = self.write_facts(batch) {
            add(&mut total, ExportFailure { lost_records: 0, source });
        }
        total.map_or(Ok(()), Err)
    }

    /// Writes a text under the rule's tag, at the alert's own step and time.
    fn alert(&mut self, alert: &Alert) -> Result<(), ExportError> {
        let tag = format!("{ALERT_TAG}{}", alert.rule);
        let value = Value::Text(format!("**{}** {}", alert.severity.name(), alert.message));
        self.facts.append(unix_seconds(alert.time), alert.step, &[Point { tag: &tag, value }])
    }

    fn shutdown(&mut self, _deadline: Instant) -> Result<(), ExportError> {
        self.kinds.clear();
        Ok(())
    }

    fn locations(&self) -> Vec<String> {
        vec![self.directory.display().to_string()]
    }
}

/// Adds up losses. A failed write takes precedence over tags beyond the limit as the reason.
fn add(total: &mut Option<ExportFailure>, failure: ExportFailure) {
    let Some(total) = total else {
        *total = Some(failure);
        return;
    };
    total.lost_records += failure.lost_records;
    if matches!(total.source, ExportError::TooManyTags { .. }) {
        total.source = failure.source;
    }
}

fn scalar(tag: &str, value: f64) -> Point<'_> {
    Point { tag, value: Value::Scalar(value) }
}

/// The value in a column; `None` if a tensor with dimensions has no single value.
fn column_value(kind: Kind, reading: &Reading, column: &str) -> Option<f64> {
    let values = kind.value_columns();
    if let Some(place) = values.iter().position(|name| *name == column) {
        return reading.values().get(place).copied();
    }
    let stats = reading.tensor()?;
    match Statistic::from_name(column)? {
        Statistic::Id => stats.id().map(trainmon_core::Scalar::as_f64),
        statistic => Some(stats.value(statistic)),
    }
}

/// The distribution of the step's update ratios, whether or not each has its own tag.
fn distribution(records: &[&Record]) -> Vec<Point<'static>> {
    let ratios = records.iter().filter_map(|record| record.reading.as_ref()?.values().first().copied());
    let (histogram, left_out) = Histogram::of_ratios(ratios);
    let histogram =
        histogram.map(|histogram| Point { tag: UPDATE_RATIO_HISTOGRAM, value: Value::Histogram(histogram) });
    histogram.into_iter().chain([scalar(UPDATE_RATIO_LEFT_OUT, left_out as f64)]).collect()
}
