//! Cumulative sums and histograms since the exporter's start, updated step by step.
//!
//! Every step is added exactly once and in order, whether it is sent or not, so that a delivered sum is right however
//! many earlier steps were lost. A sum counts observations, not deliveries.

use std::time::Duration;

use trainmon_core::catalog::{
    BYTES_READ, COLLECT_DURATION, GRAD_NORM_MISMATCHES, NONFINITE_ELEMENTS, SKIPPED_STEPS, STEP_DURATION, STEPS,
};
use trainmon_core::{Kind, Phase, PhaseTimes, StepBatch};

use super::points::{Points, Times};
use super::resource::text;
use crate::MeasuredStatistics;
use crate::summary::{COLLECT_SECONDS, STEP_SECONDS, nonfinite_elements, phases_in_step, tensor_label};

#[derive(Clone, Debug)]
struct Distribution {
    bounds: &'static [f64],
    buckets: Vec<u64>,
    sum: f64,
}

impl Distribution {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, buckets: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn observe(&mut self, seconds: f64) {
        self.buckets[self.bounds.partition_point(|&bound| bound < seconds)] += 1;
        self.sum += seconds;
    }
}

/// The contribution of one step to the sums.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepCounts {
    skipped_steps: u64,
    norm_mismatches: u64,
    bytes_read: u64,
    duration: Option<Duration>,
    cost: PhaseTimes,
    /// By `tensor` label; empty in most steps.
    nonfinite: Vec<(&'static str, u64)>,
}

impl StepCounts {
    pub(crate) fn of(batch: &StepBatch, measured: MeasuredStatistics) -> Self {
        let mut nonfinite: Vec<(&'static str, u64)> = Vec::new();
        for record in &batch.records {
            let Some(reading) = &record.reading else { continue };
            let elements = nonfinite_elements(reading, record.kind, measured);
            if elements > 0 {
                let label = tensor_label(record.kind);
                match nonfinite.iter_mut().find(|(known, _)| *known == label) {
                    Some((_, total)) => *total += elements,
                    None => nonfinite.push((label, elements)),
                }
            }
        }
        Self {
            skipped_steps: batch.skipped_steps,
            norm_mismatches: u64::from(batch.grad_norm_check().is_some_and(|check| !check.agrees())),
            bytes_read: batch.bytes_read,
            duration: batch.duration,
            cost: batch.cost,
            nonfinite,
        }
    }
}

/// The sums of one run.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    measured: MeasuredStatistics,
    /// Whether steps contain their cost.
    has_account: bool,
    steps: u64,
    skipped_steps: u64,
    norm_mismatches: u64,
    bytes_read: u64,
    step_seconds: Distribution,
    collect_seconds: Vec<(Phase, Distribution)>,
    /// By `tensor` label, which kinds may share.
    nonfinite: Vec<(&'static str, u64)>,
}

impl Counters {
    pub(crate) fn new(measured: MeasuredStatistics, has_account: bool) -> Self {
        let mut nonfinite: Vec<(&'static str, u64)> = Vec::new();
        let counted = |kind: &Kind| kind.value_columns().is_empty() && !measured.of(*kind).is_empty();
        for label in Kind::ALL.into_iter().filter(counted).map(tensor_label) {
            // Counters start at 0 before their first event, because a rate needs an earlier sample.
            if !nonfinite.iter().any(|(known, _)| *known == label) {
                nonfinite.push((label, 0));
            }
        }
        Self {
            measured,
            has_account,
            steps: 0,
            skipped_steps: 0,
            norm_mismatches: 0,
            bytes_read: 0,
            step_seconds: Distribution::new(&STEP_SECONDS),
            collect_seconds: phases_in_step().map(|phase| (phase, Distribution::new(&COLLECT_SECONDS))).collect(),
            nonfinite,
        }
    }

    /// The contribution of a step.
    pub(crate) fn counts_of(&self, batch: &StepBatch) -> StepCounts {
        StepCounts::of(batch, self.measured)
    }

    /// Adds a step.
    pub(crate) fn fold(&mut self, step: &StepCounts) {
        let StepCounts { skipped_steps, norm_mismatches, bytes_read, duration, cost, nonfinite } = step;
        self.steps += 1;
        self.skipped_steps += skipped_steps;
        self.norm_mismatches += norm_mismatches;
        self.bytes_read += bytes_read;
        if let Some(duration) = duration {
            self.step_seconds.observe(duration.as_secs_f64());
        }
        for (phase, seconds) in &mut self.collect_seconds {
            seconds.observe(cost.get(*phase).as_secs_f64());
        }
        for (label, elements) in nonfinite {
            if let Some((_, total)) = self.nonfinite.iter_mut().find(|(known, _)| known == label) {
                *total += elements;
            }
        }
    }

    /// Adds the points of the sums after the last step.
    pub(crate) fn push(&self, points: &mut Points, times: Times) {
        points.sum(&STEPS, times, Vec::new(), self.steps);
        if self.has_account {
            points.sum(&SKIPPED_STEPS, times, Vec::new(), self.skipped_steps);
            points.sum(&BYTES_READ, times, Vec::new(), self.bytes_read);
        }
        points.sum(&GRAD_NORM_MISMATCHES, times, Vec::new(), self.norm_mismatches);
        for &(tensor, total) in &self.nonfinite {
            points.sum(&NONFINITE_ELEMENTS, times, vec![text("tensor", tensor)], total);
        }
        let push = |points: &mut Points, metric, attributes, Distribution { bounds, buckets, sum }: &Distribution| {
            points.histogram(metric, times, attributes, bounds, buckets.clone(), *sum);
        };
        push(points, &STEP_DURATION, Vec::new(), &self.step_seconds);
        for (phase, seconds) in self.collect_seconds.iter().filter(|_| self.has_account) {
            push(points, &COLLECT_DURATION, vec![text("phase", phase.name())], seconds);
        }
    }
}
