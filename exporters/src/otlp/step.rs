//! Converts a step's batch to points: the contents of the metrics page, with the step's own time.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use trainmon_core::catalog::{
    self, GRAD_NORM, GRAD_NORM_SELF_CHECK, GROUP_GRAD_NORM_SHARE, LAST_STEP_TIMESTAMP, LEARNING_RATE, LOSS, SCALAR,
    STEP, TOP_GRAD_NORM, UPDATE_NORM, UPDATE_RATIO, WORLD_SIZE,
};
use trainmon_core::config::Config;
use trainmon_core::{Group, Kind, PartTable, Reading, Statistic, StepBatch, TensorInfo};

use super::counters::{Counters, StepCounts};
use super::detail::Detail;
use super::points::{Points, Times};
use super::resource::text;
use super::self_metrics::push_self_metrics;
use crate::summary::{CellValue, Cells, GradientSummary, Gradients, Tier};
use crate::{MeasuredStatistics, RunInfo, Sources};

/// The number of largest gradient norms, the default of the metrics page.
const TOP: usize = 8;

/// Converts steps to points. Each step once and in order, because the sums depend on it.
#[derive(Debug)]
pub(crate) struct StepEncoder {
    start: u64,
    world_size: u32,
    measured: MeasuredStatistics,
    sources: Sources,
    counters: Counters,
    gradients: Gradients,
    tiers: Vec<TierPoints>,
    detail: Option<Detail>,
    ratios: Vec<f64>,
}

impl StepEncoder {
    pub(crate) fn new(config: &Config, per_parameter: bool, run: &RunInfo, sources: &Sources) -> Self {
        let measured = sources.statistics;
        let mut tiers = vec![Tier::Layer, Tier::LayerPart];
        // Other details are separate points.
        tiers.extend(per_parameter.then_some(Tier::ParameterPart));
        Self {
            start: unix_nanoseconds(SystemTime::now()),
            world_size: run.world_size,
            measured,
            sources: sources.clone(),
            counters: Counters::new(measured, sources.has_account),
            gradients: Gradients::new(TOP, measured),
            tiers: tiers.into_iter().map(|tier| TierPoints::new(tier, measured, &sources.parts)).collect(),
            detail: per_parameter.then(|| Detail::new(config)),
            ratios: Vec::new(),
        }
    }

    /// The contribution of a step to the sums, for a step that is encoded later.
    pub(crate) fn counts_of(&self, batch: &StepBatch) -> StepCounts {
        self.counters.counts_of(batch)
    }

    /// Adds a step that is never encoded, so that later sums include it.
    pub(crate) fn count_lost(&mut self, step: &StepCounts) {
        self.counters.fold(step);
    }

    /// Encodes the points of a step.
    pub(crate) fn encode(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Vec<Metric> {
        self.counters.fold(&self.counters.counts_of(batch));
        let now = unix_nanoseconds(batch.time);
        // The clock may have been set back since the start, or the step may be old. A sum's start must not be after its
        // time, and does not move forward, because that would mean a reset of the sums.
        self.start = self.start.min(now);
        let times = Times { start: self.start, now };
        let mut points = Points::default();
        let number = |points: &mut Points, metric: &catalog::Metric, value: Option<f64>| {
            if let Some(value) = value {
                points.gauge(metric, now, Vec::new(), Value::AsDouble(value));
            }
        };
        points.gauge(&STEP, now, Vec::new(), Value::AsInt(batch.step.0 as i64));
        points.gauge(&WORLD_SIZE, now, Vec::new(), Value::AsInt(i64::from(self.world_size)));
        number(&mut points, &LAST_STEP_TIMESTAMP, Some(now as f64 / 1e9));
        number(&mut points, &LOSS, batch.loss);
        number(&mut points, &LEARNING_RATE, batch.learning_rate);
        push_scalars(&mut points, now, names, batch);
        self.push_gradients(&mut points, now, names, batch);
        number(&mut points, &GRAD_NORM_SELF_CHECK, batch.grad_norm_check().map(|check| check.ratio()));
        if self.measured.of(Kind::Update).contains(Statistic::Norm) {
            number(&mut points, &UPDATE_NORM, batch.update_norm());
        }
        if let Some((max, median)) = batch.update_ratios(&mut self.ratios) {
            for (agg, value) in [("max", max), ("median", median)] {
                points.gauge(&UPDATE_RATIO, now, vec![text("agg", agg)], Value::AsDouble(value));
            }
        }
        self.push_tiers(&mut points, now, names, batch);
        self.counters.push(&mut points, times);
        push_self_metrics(&mut points, times, batch, &self.sources);
        if let Some(detail) = &mut self.detail {
            detail.push(&mut points, now, names, batch);
        }
        points.into_metrics()
    }

    fn push_gradients(&mut self, points: &mut Points, now: u64, names: &[TensorInfo], batch: &StepBatch) {
        let GradientSummary { norm, norm_of_records, top, group_norms } = self.gradients.summarise(names, batch);
        if let Some(norm) = norm {
            points.gauge(&GRAD_NORM, now, Vec::new(), Value::AsDouble(norm));
        }
        let Some(norm_of_records) = norm_of_records else { return };
        for (slot, entry) in top.iter().enumerate() {
            points.gauge(&TOP_GRAD_NORM, now, vec![text("slot", slot.to_string())], Value::AsDouble(entry.norm));
        }
        for group in Group::ALL {
            let Some(of_group) = group_norms[group as usize] else { continue };
            let share = (of_group / norm_of_records).powi(2);
            points.gauge(&GROUP_GRAD_NORM_SHARE, now, vec![text("group", group.name())], Value::AsDouble(share));
        }
    }

    fn push_tiers(&mut self, points: &mut Points, now: u64, names: &[TensorInfo], batch: &StepBatch) {
        let last = batch.last_micro_steps();
        let mut open: Vec<&mut TierPoints> = self.tiers.iter_mut().filter(|tier| tier.cells.is_open()).collect();
        for record in &batch.records {
            let stats = record.reading.as_ref().and_then(Reading::tensor);
            let (Some(stats), Some(tensor)) = (stats, names.get(record.tensor.index())) else { continue };
            if record.micro_step == last[record.kind as usize] {
                for tier in &mut open {
                    tier.cells.add(tensor, record, stats);
                }
            }
        }
        for tier in &mut open {
            tier.push(points, now);
        }
    }
}

/// A tier's cells with their attributes.
#[derive(Debug)]
struct TierPoints {
    metrics: Vec<catalog::Metric>,
    cells: Cells,
    /// By cell.
    attributes: Vec<Vec<KeyValue>>,
}

impl TierPoints {
    fn new(tier: Tier, measured: MeasuredStatistics, parts: &Arc<PartTable>) -> Self {
        let cells = Cells::new(tier, measured, parts);
        Self { metrics: tier.metrics().collect(), cells, attributes: Vec::new() }
    }

    /// Ends the step. Cells provide their families in turn, but a message needs all points of one family together.
    fn push(&mut self, points: &mut Points, now: u64) {
        let Self { metrics, cells, attributes } = self;
        let mut by_family = vec![Vec::new(); metrics.len()];
        cells.flush(|CellValue { cell, family, value, name }| {
            if attributes.len() <= cell {
                attributes.resize(cell + 1, Vec::new());
            }
            if attributes[cell].is_empty() {
                let labels = name.labels();
                let given = labels.iter().filter(|(_, value)| !value.is_empty());
                attributes[cell] = given.map(|(key, value)| text(key, &**value)).collect();
            }
            by_family[family].push((attributes[cell].clone(), value));
        });
        for (metric, cells) in metrics.iter().zip(by_family) {
            for (attributes, value) in cells {
                points.gauge(metric, now, attributes, Value::AsDouble(value));
            }
        }
    }
}

/// Adds the numbers that the script logs.
fn push_scalars(points: &mut Points, now: u64, names: &[TensorInfo], batch: &StepBatch) {
    for record in batch.records.iter().filter(|record| record.kind == Kind::Scalar) {
        let value = record.reading.as_ref().and_then(|reading| reading.values().first());
        if let (Some(&value), Some(info)) = (value, names.get(record.tensor.index())) {
            points.gauge(&SCALAR, now, vec![text("name", &*info.name)], Value::AsDouble(value));
        }
    }
}

/// A time in OTLP's notation: 0 before 1970.
pub(crate) fn unix_nanoseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
