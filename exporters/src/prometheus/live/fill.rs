//! From step batches to the history: on the exporter's thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

use trainmon_core::{Alert, Kind, Record, Statistic, StepBatch, TensorId, TensorInfo};
use trainmon_history::{ABSENT, Cell, CurveId, History, RowId, STATISTICS, cell_of, curves};

use super::LiveRun;
use crate::MeasuredStatistics;
use crate::prometheus::metric_table::StepSummary;
use crate::summary::last_micro_steps;

/// Whether a tensor of a kind has a row: asked once.
#[derive(Clone, Copy, Debug)]
enum Place {
    Unknown,
    Nowhere,
    Row(RowId),
}

/// Fills a run's history from its batches.
#[derive(Debug)]
pub(crate) struct HistoryWriter {
    live: Arc<LiveRun>,
    measured: MeasuredStatistics,
    budget: Option<f64>,
    /// By kind and tensor.
    rows: [Vec<Place>; Kind::ALL.len()],
    scalars: HashMap<TensorId, Option<CurveId>>,
}

impl HistoryWriter {
    pub(crate) fn new(live: Arc<LiveRun>, measured: MeasuredStatistics, budget: Option<f64>) -> Self {
        Self { live, measured, budget, rows: Default::default(), scalars: HashMap::new() }
    }

    /// Takes a step in.
    pub(crate) fn export(&mut self, names: &[TensorInfo], batch: &StepBatch, summary: &StepSummary, now: Instant) {
        let Self { live, measured, budget, rows, scalars } = self;
        live.change(|state| {
            let time = batch.time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
            let history = &mut state.history;
            history.step(batch.step.0, time, batch.records.iter().any(|record| record.kind != Kind::Scalar));
            set_curves(history, batch, summary);
            let last = last_micro_steps(batch);
            let is_last = |record: &&Record| record.micro_step == last[record.kind as usize];
            for record in batch.records.iter().filter(is_last) {
                let (Some(reading), Some(tensor)) = (&record.reading, names.get(record.tensor.index())) else {
                    continue;
                };
                if record.kind == Kind::Scalar {
                    let curve = scalars.entry(record.tensor);
                    let curve = *curve.or_insert_with(|| history.curve(&curves::scalar(&tensor.name)));
                    if let (Some(curve), Some(&value)) = (curve, reading.values().first()) {
                        history.record(curve, batch.step.0, value);
                    }
                } else if let Some(row) = row(history, &mut rows[record.kind as usize], record, tensor) {
                    let mut cell = cell_of(record.kind, reading);
                    if record.kind.value_columns().is_empty() {
                        leave_out_unmeasured(&mut cell, record.kind, *measured);
                    }
                    history.set(row, batch.step.0, cell);
                }
            }
            state.add_cost(batch, *budget);
            state.newest = Some((batch.step.0, now));
        });
    }

    /// Takes an alert in.
    pub(crate) fn alert(&self, alert: &Alert) {
        self.live.change(|state| state.history.alert(alert.clone()));
    }
}

fn set_curves(history: &mut History, batch: &StepBatch, summary: &StepSummary) {
    let StepSummary { grad_norm, update_norm, update_ratios } = *summary;
    let times = batch.records.iter().filter(|record| record.kind == Kind::CommTime);
    let times = times.filter_map(|record| record.reading.as_ref()?.values().get(1).copied());
    let values = [
        (curves::LOSS, batch.loss),
        (curves::GRAD_NORM, grad_norm),
        (curves::FRAMEWORK_GRAD_NORM, batch.framework_grad_norm),
        (curves::UPDATE_NORM, update_norm),
        (curves::UPDATE_RATIO_MAX, update_ratios.map(|(max, _)| max)),
        (curves::UPDATE_RATIO_MEDIAN, update_ratios.map(|(_, median)| median)),
        (curves::LEARNING_RATE, batch.learning_rate),
        (curves::STEP_SECONDS, batch.duration.map(|duration| duration.as_secs_f64())),
        (curves::COLLECT_SECONDS, Some(batch.cost.in_step().as_secs_f64())),
        (curves::COLLECTIVE_SECONDS, times.reduce(|a, b| a + b)),
    ];
    for (name, value) in values {
        let Some(value) = value else { continue };
        if let Some(curve) = history.curve(name) {
            history.record(curve, batch.step.0, value);
        }
    }
}

fn row(history: &mut History, places: &mut Vec<Place>, record: &Record, tensor: &TensorInfo) -> Option<RowId> {
    let index = record.tensor.index();
    if places.len() <= index {
        places.resize(index + 1, Place::Unknown);
    }
    if let Place::Unknown = places[index] {
        let name = match tensor.vpp_stage {
            0 => history.row(record.kind.name(), &tensor.name),
            stage => history.row(record.kind.name(), &format!("{stage}:{}", tensor.name)),
        };
        places[index] = name.map_or(Place::Nowhere, Place::Row);
    }
    if let Place::Row(row) = places[index] { Some(row) } else { None }
}

fn leave_out_unmeasured(cell: &mut Cell, kind: Kind, measured: MeasuredStatistics) {
    const ASKED: [Statistic; STATISTICS] = [Statistic::Norm, Statistic::AbsMax, Statistic::Zeros];
    let measured = measured.of(kind);
    for (value, statistic) in cell.iter_mut().zip(ASKED) {
        if !measured.contains(statistic) {
            *value = ABSENT;
        }
    }
}
