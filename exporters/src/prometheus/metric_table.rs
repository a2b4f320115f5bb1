//! Updates the current values from step batches, on the exporter's thread.
//!
//! The exporter works on its own table and then publishes a copy. Publishing and starting a scrape both hold one lock
//! for the swap of a pointer. A scrape in progress renders from its own snapshot, so scrapes and steps never delay each
//! other. The cost is two more copies of the values, 8 bytes per series each; the texts are shared.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use trainmon_core::config::Prometheus;
use trainmon_core::{Group, Kind, PartTable, Statistic, Step, StepBatch, TensorInfo};
use trainmon_history::StepFigures;

use super::counters::Counters;
use super::interval_max::{IntervalMax, StepMaximum};
use super::run_gauges::{RunGauge, RunSeries};
use super::scalar_series::ScalarSeries;
use super::series::{Table, label_text};
use super::tier_series::{Budget, TierSeries};
use crate::MeasuredStatistics;
use crate::summary::{GradientSummary, Gradients, Tier};

/// One of the largest gradient norms, with its name.
#[derive(Clone, Debug)]
pub(crate) struct TopEntry {
    pub(crate) tensor: TensorInfo,
    pub(crate) norm: f64,
}

/// The data of a scrape.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) table: Table,
    pub(crate) peaks: IntervalMax,
    pub(crate) top: Vec<TopEntry>,
    /// The step of `top`.
    pub(crate) top_step: Option<Step>,
    /// The last step and its arrival time.
    pub(crate) last_step: Option<(Step, Instant)>,
}

/// The current snapshot. The lock is held for the swap of a pointer.
#[derive(Debug)]
pub(crate) struct Current(Mutex<Arc<Snapshot>>);

impl Current {
    /// The snapshot for a scrape that begins now.
    pub(crate) fn get(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, next: Arc<Snapshot>) -> Arc<Snapshot> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), next)
    }
}

/// The exporter thread's side.
#[derive(Debug)]
pub(crate) struct MetricTable {
    working: Snapshot,
    run_series: RunSeries,
    scalars: ScalarSeries,
    tiers: Vec<TierSeries>,
    gradients: Gradients,
    measured: MeasuredStatistics,
    series_left: usize,
    ratios: Vec<f64>,
    /// The share of a step's time that measuring may take, if there is a limit.
    overhead_budget: Option<f64>,
    current: Arc<Current>,
    /// The previous snapshot, whose memory is reused unless a scrape still reads it.
    spare: Option<Arc<Snapshot>>,
    counters: Arc<Counters>,
}

impl MetricTable {
    /// The layer and parameter tiers stay empty until [`MetricTable::allow_series`].
    pub(crate) fn new(
        config: &Prometheus,
        measured: MeasuredStatistics,
        parts: &Arc<PartTable>,
        counters: Arc<Counters>,
        now: Instant,
    ) -> Self {
        let asked = [
            (Tier::Layer, config.per_layer),
            (Tier::LayerPart, config.per_layer),
            (Tier::Parameter, config.per_parameter),
            (Tier::ParameterPart, config.per_parameter),
        ];
        let mut metrics = RunGauge::metrics();
        let mut tiers = Vec::new();
        for (tier, _) in asked.into_iter().filter(|&(_, asked)| asked) {
            tiers.push(TierSeries::new(tier, metrics.len(), measured, parts));
            metrics.extend(tier.metrics());
        }
        let peaks = IntervalMax::new(Duration::from_secs(config.interval_max_seconds), now);
        let working = Snapshot { table: Table::new(&metrics), peaks, top: Vec::new(), top_step: None, last_step: None };
        Self {
            current: Arc::new(Current(Mutex::new(Arc::new(working.clone())))),
            working,
            run_series: RunSeries::default(),
            scalars: ScalarSeries::default(),
            tiers,
            gradients: Gradients::new(config.top_k, measured),
            measured,
            series_left: 0,
            ratios: Vec::new(),
            overhead_budget: None,
            spare: None,
            counters,
        }
    }

    /// Sets how many series the layer and parameter tiers may create.
    pub(crate) fn allow_series(&mut self, series: usize) {
        self.series_left = series;
    }

    /// Adds the gauges of the overhead budget.
    pub(crate) fn set_overhead_budget(&mut self, share: Option<f64>) {
        self.overhead_budget = share;
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current)
    }

    /// Adds a step and publishes it. Values that the step did not measure are kept.
    pub(crate) fn export(&mut self, names: &[TensorInfo], batch: &StepBatch, now: Instant) -> StepFigures {
        self.set_step(batch, now);
        let grad_norm = self.set_gradients(names, batch, now);
        let (update_norm, update_ratios) = self.set_updates(batch);
        self.set_sampling(batch);
        self.set_tiers(names, batch);
        self.counters.add_step(batch);
        self.publish();
        StepFigures { grad_norm, update_norm, update_ratios }
    }

    fn set_step(&mut self, batch: &StepBatch, now: Instant) {
        self.working.last_step = Some((batch.step, now));
        let unix_seconds = batch.time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        self.set(RunGauge::Step, Some(batch.step.0 as f64));
        self.set(RunGauge::LastStepTimestamp, Some(unix_seconds));
        self.set(RunGauge::Loss, batch.loss);
        self.set(RunGauge::LearningRate, batch.learning_rate);
    }

    fn set_gradients(&mut self, names: &[TensorInfo], batch: &StepBatch, now: Instant) -> Option<f64> {
        let GradientSummary { norm, norm_of_records, top, group_norms } = self.gradients.summarise(names, batch);
        self.set(RunGauge::GradNorm, norm);
        self.set(RunGauge::GradNormSelfCheck, batch.grad_norm_check().map(|check| check.ratio()));
        let Snapshot { table, peaks, top: shown, top_step, .. } = &mut self.working;
        if let Some(norm) = norm {
            peaks.observe(now, StepMaximum { value: norm, step: batch.step });
        }
        let Some(norm_of_records) = norm_of_records else { return norm };
        let slots_before = shown.len();
        *top_step = Some(batch.step);
        shown.clear();
        for entry in &top {
            let Some(tensor) = names.get(entry.tensor.index()) else { continue };
            shown.push(TopEntry { tensor: tensor.clone(), norm: entry.norm });
        }
        for slot in 0..shown.len().max(slots_before) {
            // A slot without a gradient has no value.
            let value = shown.get(slot).map_or(f64::NAN, |entry| entry.norm);
            let labels = || label_text(&[("slot", &slot.to_string())]);
            self.run_series.set_member(table, RunGauge::TopGradNorm, slot, labels, value);
        }
        for group in Group::ALL {
            let Some(of_group) = group_norms[group as usize] else { continue };
            let labels = || label_text(&[("group", group.name())]);
            let share = (of_group / norm_of_records).powi(2);
            self.run_series.set_member(table, RunGauge::GroupShare, group as usize, labels, share);
        }
        norm
    }

    fn set_updates(&mut self, batch: &StepBatch) -> (Option<f64>, Option<(f64, f64)>) {
        let has_norms = self.measured.of(Kind::Update).contains(Statistic::Norm);
        let norm = if has_norms { batch.update_norm() } else { None };
        self.set(RunGauge::UpdateNorm, norm);
        let ratios = batch.update_ratios(&mut self.ratios);
        let Some((max, median)) = ratios else { return (norm, None) };
        for (member, (agg, value)) in [("max", max), ("median", median)].into_iter().enumerate() {
            let labels = || label_text(&[("agg", agg)]);
            self.run_series.set_member(&mut self.working.table, RunGauge::UpdateRatio, member, labels, value);
        }
        (norm, ratios)
    }

    /// Removes the values over all tensors while only a part of them is measured.
    fn set_sampling(&mut self, batch: &StepBatch) {
        self.set(RunGauge::OverheadBudget, self.overhead_budget);
        self.set(RunGauge::Sampling, self.overhead_budget.map(|_| batch.sampling_ratio()));
        if batch.sampling_stride == 1 || !batch.collected {
            return;
        }
        let table = &mut self.working.table;
        if batch.grad_norm().is_none() {
            self.run_series.forget(table, RunGauge::GradNorm);
        }
        for gauge in [RunGauge::UpdateNorm, RunGauge::UpdateRatio, RunGauge::TopGradNorm, RunGauge::GroupShare] {
            self.run_series.forget(table, gauge);
        }
        (self.working.top, self.working.top_step) = (Vec::new(), Some(batch.step));
    }

    fn set_tiers(&mut self, names: &[TensorInfo], batch: &StepBatch) {
        let last = batch.last_micro_steps();
        let mut open: Vec<&mut TierSeries> = self.tiers.iter_mut().filter(|tier| tier.cells.is_open()).collect();
        for record in &batch.records {
            let (Some(reading), Some(tensor)) = (&record.reading, names.get(record.tensor.index())) else { continue };
            self.counters.add_reading(record, reading, self.measured);
            if record.micro_step == last[record.kind as usize] {
                let Some(stats) = reading.tensor() else { continue };
                for tier in &mut open {
                    tier.cells.add(tensor, record, stats);
                }
            }
        }
        let mut budget = Budget { left: self.series_left, refused_values: 0 };
        // The script requested these by name, so they have priority over the model's series.
        self.scalars.set(&mut self.working.table, names, batch, &mut budget);
        for tier in &mut self.tiers {
            tier.flush(&mut self.working.table, &mut budget);
        }
        self.series_left = budget.left;
        self.counters.add_overflow(budget.refused_values);
    }

    fn set(&mut self, gauge: RunGauge, value: Option<f64>) {
        self.run_series.set(&mut self.working.table, gauge, value);
    }

    fn publish(&mut self) {
        let mut next = self.spare.take().unwrap_or_else(|| self.current.get());
        if let Some(snapshot) = Arc::get_mut(&mut next) {
            let Snapshot { table, peaks, top, top_step, last_step } = &self.working;
            snapshot.table.copy_from(table);
            snapshot.peaks.clone_from(peaks);
            snapshot.top.clone_from(top);
            snapshot.top_step = *top_step;
            snapshot.last_step = *last_step;
        } else {
            next = Arc::new(self.working.clone());
        }
        self.spare = Some(self.current.replace(next));
    }
}
