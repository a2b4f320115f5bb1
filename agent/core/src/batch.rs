//! One step's readings on their way from the hooks to the exporters.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use smart_default::SmartDefault;

use crate::config::{Config, Plan};
use crate::{GradNormCheck, Kind, LedgerSnapshot, Record, Statistic, Step, TensorId};

trainmon_record::named_enum! {
    /// The parts of the monitor's own work, for its cost figures.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Phase: name {
        /// In the training thread: reading tensor memory.
        Measure = "measure",
        /// In the training thread: launching device statistics and collecting finished ones.
        Launch = "launch",
        /// In the training thread: writing the step to the journal and handing the batch over.
        Offer = "offer",
        /// In the worker: everything exporters did with the batch.
        Export = "export",
    }
}

impl Phase {
    /// Whether the phase delays the training thread.
    #[inline]
    pub const fn is_in_step(self) -> bool {
        !matches!(self, Self::Export)
    }
}

/// Time spent per [`Phase`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes([Duration; 4]);

impl PhaseTimes {
    /// Adds to one phase.
    #[inline]
    pub fn add(&mut self, phase: Phase, time: Duration) {
        self.0[phase as usize] += time;
    }

    /// The time of one phase.
    #[inline]
    pub fn get(&self, phase: Phase) -> Duration {
        self.0[phase as usize]
    }

    /// The time the training thread lost.
    #[inline]
    pub fn in_step(&self) -> Duration {
        Phase::ALL.into_iter().filter(|phase| phase.is_in_step()).map(|phase| self.get(phase)).sum()
    }
}

/// Where a step's global gradient norm comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum GradNorm {
    /// The step's own records hold every gradient: see [`StepBatch::grad_norm_of_records`].
    #[default]
    OfRecords,
    /// Combined by the front over ranks that each hold a part.
    Known(f64),
    /// The records hold only a part, and the rest is unknown.
    Unknown,
}

/// Everything observed in one optimizer step. Batches are recycled: in steady state none is allocated.
#[derive(Clone, Debug, SmartDefault)]
pub struct StepBatch {
    /// The step.
    pub step: Step,
    /// Wall clock at the step's end.
    #[default(SystemTime::UNIX_EPOCH)]
    pub time: SystemTime,
    /// From the end of the previous step to the end of this one; `None` for the first.
    pub duration: Option<Duration>,
    /// Whether tensors were measured in this step, or only the clock advanced.
    pub collected: bool,
    /// Steps that the optimizer skipped since the last batch (loss scaling, for example), as reported by the caller.
    pub skipped_steps: u64,
    /// The loss, if the caller reported it.
    pub loss: Option<f64>,
    /// The learning rate, if the caller reported it.
    pub learning_rate: Option<f64>,
    /// Where the global gradient norm comes from; [`StepBatch::grad_norm`] is the norm.
    pub grad_norm: GradNorm,
    /// The global gradient norm of the framework, if the caller reported it.
    pub framework_grad_norm: Option<f64>,
    /// The statistics requested during training, in column order: every reading of this batch has them. `None`: those of the
    /// config.
    pub ops: Option<Arc<[Statistic]>>,
    /// The plan in force, if it was changed during training. `None`: the config's. `ops` takes precedence.
    pub plan: Option<Arc<Plan>>,
    /// The sampling factor that keeps the overhead budget: one in this many layers and groups was measured; 1 if all were.
    #[default(1)]
    pub sampling_stride: u32,
    /// The readings, in the order the hooks fired.
    pub records: Vec<Record>,
    /// The step's cost in the training thread.
    pub cost: PhaseTimes,
    /// The bytes of tensor memory read.
    pub bytes_read: u64,
    /// The monitor's counters at the step's end, without this batch.
    pub counts: LedgerSnapshot,
}

impl StepBatch {
    /// Empties the batch for the next step, keeping its memory.
    #[inline]
    pub fn reset(&mut self) {
        let mut records = std::mem::take(&mut self.records);
        records.clear();
        *self = Self { records, ..Self::default() };
    }

    /// The statistics of a kind of tensor in this batch, in column order: those set last during training, else the config's.
    /// Empty for a kind that is not measured.
    #[inline]
    pub fn ops_of<'a>(&'a self, config: &'a Config, kind: Kind) -> &'a [Statistic] {
        if let Some(ops) = &self.ops {
            return ops;
        }
        let signal = match &self.plan {
            // A plan covers only a part of the config.
            Some(plan) => plan
                .signal(kind)
                .or_else(|| config.signal(kind).filter(|_| matches!(kind, Kind::Adhoc | Kind::Comm | Kind::CommTime))),
            None => config.signal(kind),
        };
        signal.map_or(&[], |signal| &signal.ops)
    }

    /// The share of layers and groups measured to keep the overhead budget: 1 if all were.
    #[inline]
    pub fn sampling_ratio(&self) -> f64 {
        1.0 / f64::from(self.sampling_stride.max(1))
    }

    /// The global gradient norm, before clipping if that was measured. `None` if it is unknown.
    ///
    /// Cost: that of [`grad_norm_of_records`](Self::grad_norm_of_records), unless the front provides the norm.
    #[inline]
    pub fn grad_norm(&self) -> Option<f64> {
        match self.grad_norm {
            GradNorm::OfRecords => self.grad_norm_of_records(),
            GradNorm::Known(norm) => Some(norm),
            GradNorm::Unknown => None,
        }
    }

    /// trainmon's gradient norm and the framework's. `None` unless both are known.
    #[inline]
    pub fn grad_norm_check(&self) -> Option<GradNormCheck> {
        let framework = self.framework_grad_norm?;
        Some(GradNormCheck { ours: self.grad_norm()?, framework })
    }

    /// The gradient norm over this step's records, before clipping if that was measured. It uses each tensor's `GradUnreduced`
    /// record of its last micro-batch, else its `GradReduced` record. `None` if no gradient was measured.
    ///
    /// Cost: one sort of the step's gradient records.
    #[inline]
    pub fn grad_norm_of_records(&self) -> Option<f64> {
        let mut norms: Vec<(TensorId, u32, f64)> = self.records.iter().filter_map(norm_before_clipping).collect();
        norms.sort_unstable_by_key(|&(tensor, rank, _)| (tensor, std::cmp::Reverse(rank)));
        norms.dedup_by_key(|&mut (tensor, ..)| tensor);
        root_of_squares(norms.iter().map(|&(.., norm)| norm))
    }
}

/// A gradient's norm, with the rank among the records of its tensor: later micro-batches first, the reduced one last.
#[inline]
fn norm_before_clipping(record: &Record) -> Option<(TensorId, u32, f64)> {
    let rank = match record.kind {
        Kind::GradUnreduced => record.micro_step.0.saturating_add(1),
        Kind::GradReduced => 0,
        _ => return None,
    };
    Some((record.tensor, rank, record.reading.as_ref()?.tensor()?.norm))
}

/// sqrt of the sum of squares; `None` for no values. Norms beyond 1e±150 are scaled first: their squares leave float64.
#[inline]
fn root_of_squares(norms: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let largest = norms.clone().reduce(|a, b| if a.is_nan() || a > b { a } else { b })?;
    if largest == 0.0 || !largest.is_finite() {
        return Some(largest);
    }
    let scale = if (1e-150..1e150).contains(&largest) { 1.0 } else { largest };
    Some(scale * norms.map(|norm| (norm / scale).powi(2)).sum::<f64>().sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MicroStep, TensorStats};

    fn norm_record(tensor: u32, kind: Kind, micro_step: u32, norm: f64) -> Record {
        let reading = TensorStats { norm, ..TensorStats::of_value(norm) };
        Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(micro_step), reading: Some(reading.into()) }
    }

    #[test]
    fn the_global_norm_is_taken_before_clipping_where_that_was_measured() {
        let mut batch = StepBatch::default();
        assert_eq!(batch.grad_norm(), None);
        batch.records.push(norm_record(0, Kind::GradReduced, 1, 1.0));
        assert_eq!(batch.grad_norm(), Some(1.0));
        batch.records.push(norm_record(0, Kind::GradUnreduced, 0, 100.0));
        batch.records.push(norm_record(0, Kind::GradUnreduced, 1, 3.0));
        batch.records.push(norm_record(1, Kind::GradUnreduced, 1, 4.0));
        assert_eq!(batch.grad_norm(), Some(5.0));
    }

    #[test]
    fn a_tensor_without_a_reading_before_reduction_counts_with_the_one_after() {
        let mut batch = StepBatch::default();
        batch.records.push(norm_record(0, Kind::GradUnreduced, 0, 3.0));
        batch.records.push(norm_record(0, Kind::GradReduced, 0, 1.0));
        batch.records.push(norm_record(1, Kind::GradReduced, 0, 4.0));
        assert_eq!(batch.grad_norm(), Some(5.0));
    }

    #[test]
    fn a_norm_the_front_knows_goes_before_that_of_the_records() {
        let mut batch = StepBatch { grad_norm: GradNorm::Known(7.0), ..StepBatch::default() };
        batch.records.push(norm_record(0, Kind::GradReduced, 0, 3.0));
        assert_eq!((batch.grad_norm(), batch.grad_norm_of_records()), (Some(7.0), Some(3.0)));
        batch.grad_norm = GradNorm::Unknown;
        assert_eq!((batch.grad_norm(), batch.grad_norm_of_records()), (None, Some(3.0)));
        batch.reset();
        assert_eq!(batch.grad_norm, GradNorm::OfRecords);
    }

    #[test]
    fn the_norms_are_compared_only_where_both_are_known() {
        let mut batch = StepBatch { framework_grad_norm: Some(4.0), ..StepBatch::default() };
        assert_eq!(batch.grad_norm_check(), None);
        batch.grad_norm = GradNorm::Known(2.0);
        assert_eq!(batch.grad_norm_check(), Some(GradNormCheck { ours: 2.0, framework: 4.0 }));
        batch.framework_grad_norm = None;
        assert_eq!(batch.grad_norm_check(), None);
    }

    #[test]
    fn the_global_norm_survives_large_values_and_shows_nan() {
        let mut batch = StepBatch::default();
        batch.records.push(norm_record(0, Kind::GradReduced, 0, 3e200));
        batch.records.push(norm_record(1, Kind::GradReduced, 0, 4e200));
        assert!((batch.grad_norm().unwrap() / 5e200 - 1.0).abs() < 1e-15);
        batch.records.push(norm_record(2, Kind::GradReduced, 0, f64::NAN));
        assert!(batch.grad_norm().unwrap().is_nan());
    }
}
