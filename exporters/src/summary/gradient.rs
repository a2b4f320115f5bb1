//! Figures over all gradients and updates of a step: norm, largest parameters, shares, update ratios.

use trainmon_core::{GradNorm, Group, Kind, Reading, Statistic, StepBatch, TensorId, TensorInfo, combine_norms};

use crate::MeasuredStatistics;

/// The maximum number of slots of `trainmon_top_grad_norm`.
pub(crate) const MAX_TOP: usize = 16;

/// One of the largest gradient norms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TopNorm {
    pub(crate) norm: f64,
    pub(crate) tensor: TensorId,
}

/// The figures over a step's gradients.
#[derive(Debug, Default)]
pub(crate) struct GradientSummary {
    /// The norm of the run's gradients; `None` if unknown.
    pub(crate) norm: Option<f64>,
    /// The norm of this rank's records, to which the shares are relative; `None` if no gradient norm was measured.
    pub(crate) norm_of_records: Option<f64>,
    /// Largest first; NaN before all others.
    pub(crate) top: Vec<TopNorm>,
    /// By [`Group`]; `None` for a group without gradient.
    pub(crate) group_norms: [Option<f64>; Group::ALL.len()],
}

/// Computes the figures of a step; caches the groups of known tensors.
#[derive(Debug)]
pub(crate) struct Gradients {
    top_k: usize,
    measured: MeasuredStatistics,
    groups: Vec<Group>,
}

impl Gradients {
    pub(crate) fn new(top_k: usize, measured: MeasuredStatistics) -> Self {
        Self { top_k: top_k.min(MAX_TOP), measured, groups: Vec::new() }
    }

    /// Uses the same records as [`StepBatch::grad_norm_of_records`].
    pub(crate) fn summarise(&mut self, names: &[TensorInfo], batch: &StepBatch) -> GradientSummary {
        let mut summary = GradientSummary::default();
        if let GradNorm::Known(norm) = batch.grad_norm {
            summary.norm = Some(norm);
        }
        if batch.sampling_stride > 1 {
            // Only a part of the gradients was measured, so none of the figures apply to the run.
            return summary;
        }
        let unreduced = batch.records.iter().any(|record| record.kind == Kind::GradUnreduced);
        let kind = if unreduced { Kind::GradUnreduced } else { Kind::GradReduced };
        if !self.measured.of(kind).contains(Statistic::Norm) {
            return summary;
        }
        summary.norm_of_records = batch.grad_norm_of_records();
        if batch.grad_norm == GradNorm::OfRecords {
            summary.norm = summary.norm_of_records;
        }
        let last = batch.last_micro_steps()[kind as usize];
        self.learn_groups(names);
        for record in batch.records.iter().filter(|record| record.kind == kind) {
            let Some(Reading::Tensor(reading)) = record.reading.filter(|_| !unreduced || record.micro_step == last)
            else {
                continue;
            };
            self.keep_if_large(&mut summary.top, TopNorm { norm: reading.norm, tensor: record.tensor });
            if let Some(&group) = self.groups.get(record.tensor.index()) {
                let norm = &mut summary.group_norms[group as usize];
                *norm = Some(combine_norms(norm.unwrap_or(0.0), reading.norm));
            }
        }
        summary
    }

    fn learn_groups(&mut self, names: &[TensorInfo]) {
        if let Some(new) = names.get(self.groups.len()..) {
            self.groups.extend(new.iter().map(|tensor| Group::of(&tensor.name)));
        }
    }

    fn keep_if_large(&self, top: &mut Vec<TopNorm>, candidate: TopNorm) {
        let larger = |a: f64, b: f64| a > b || (a.is_nan() && !b.is_nan());
        let place = top.partition_point(|kept| !larger(candidate.norm, kept.norm));
        if place < self.top_k {
            top.truncate(self.top_k - 1);
            top.insert(place, candidate);
        }
    }
}
