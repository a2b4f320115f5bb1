//! Alert counters, readable from any thread while the worker updates them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::{AlertMarks, AlertRule, Step};

/// Relaxed, because counters and a gauge publish no other memory.
const COUNT: Ordering = Ordering::Relaxed;

/// Alert counters. Every finding counts, including those of ongoing alerts, which are not reported.
#[derive(Debug, Default)]
pub struct AlertTotals {
    findings: [AtomicU64; AlertRule::ALL.len()],
    grad_norm_spikes: AtomicU64,
    update_norm_spikes: AtomicU64,
    /// Step and value belong together. The lock is held for a copy only, by the worker once per step.
    grad_norm_zscore: Mutex<Option<(Step, f64)>>,
    lost: AtomicU64,
    series_overflow: AtomicU64,
    /// In nanoseconds.
    looking: AtomicU64,
    marks: AlertMarks,
}

/// A snapshot of [`AlertTotals`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlertTotalsSnapshot {
    /// Findings by rule, in the order of [`AlertRule::ALL`].
    pub findings: [u64; AlertRule::ALL.len()],
    /// The number of steps in which the global gradient norm spiked.
    pub grad_norm_spikes: u64,
    /// The number of steps in which the global update norm spiked.
    pub update_norm_spikes: u64,
    /// The latest distance of the global gradient norm from its recent mean, in standard deviations, with its step. NaN
    /// for a norm that is NaN; `None` while the recent norms have no variation.
    pub grad_norm_zscore: Option<(Step, f64)>,
    /// Alerts that an action or exporter did not receive, because a queue was full or a webhook failed.
    pub lost: u64,
    /// Values that no rule checked, because there were too many series.
    pub series_overflow: u64,
    /// The time that the worker spent on rules.
    pub looking: Duration,
}

impl AlertTotals {
    /// Counts a finding of a rule.
    pub fn found(&self, rule: AlertRule) {
        self.findings[rule as usize].fetch_add(1, COUNT);
    }

    /// Counts a spike of the global gradient norm.
    pub fn grad_norm_spiked(&self) {
        self.grad_norm_spikes.fetch_add(1, COUNT);
    }

    /// Counts a spike of the global update norm.
    pub fn update_norm_spiked(&self) {
        self.update_norm_spikes.fetch_add(1, COUNT);
    }

    /// Sets the distance of this step's global gradient norm from its recent mean, in standard deviations.
    pub fn set_grad_norm_zscore(&self, step: Step, zscore: f64) {
        *self.grad_norm_zscore.lock() = Some((step, zscore));
    }

    /// Counts alerts that did not reach an action or exporter.
    pub fn lose(&self, alerts: u64) {
        self.lost.fetch_add(alerts, COUNT);
    }

    /// Counts values that no rule checked.
    pub fn overflow(&self, values: u64) {
        self.series_overflow.fetch_add(values, COUNT);
    }

    /// Adds the time that the rules took for one step.
    pub fn looked(&self, time: Duration) {
        self.looking.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), COUNT);
    }

    /// The root cause of each rule's latest incident.
    pub fn marks(&self) -> &AlertMarks {
        &self.marks
    }

    /// Returns the current counts.
    pub fn snapshot(&self) -> AlertTotalsSnapshot {
        let Self {
            findings,
            grad_norm_spikes,
            update_norm_spikes,
            grad_norm_zscore,
            lost,
            series_overflow,
            looking,
            marks: _,
        } = self;
        AlertTotalsSnapshot {
            findings: std::array::from_fn(|rule| findings[rule].load(COUNT)),
            grad_norm_spikes: grad_norm_spikes.load(COUNT),
            update_norm_spikes: update_norm_spikes.load(COUNT),
            grad_norm_zscore: *grad_norm_zscore.lock(),
            lost: lost.load(COUNT),
            series_overflow: series_overflow.load(COUNT),
            looking: Duration::from_nanos(looking.load(COUNT)),
        }
    }
}

impl AlertTotalsSnapshot {
    /// The number of findings of one rule.
    pub fn findings_of(&self, rule: AlertRule) -> u64 {
        self.findings[rule as usize]
    }

    /// The z-score of the gradient norm in this step. `None` if the latest one is of another step or not a number.
    pub fn grad_norm_zscore_of(&self, step: Step) -> Option<f64> {
        self.grad_norm_zscore.filter(|&(of, zscore)| of == step && !zscore.is_nan()).map(|(_, zscore)| zscore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_counter_of_its_own() {
        let totals = AlertTotals::default();
        assert_eq!(totals.snapshot().grad_norm_zscore, None);
        for (times, rule) in AlertRule::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| totals.found(rule));
        }
        for (times, rule) in AlertRule::ALL.into_iter().enumerate() {
            assert_eq!(totals.snapshot().findings_of(rule), times as u64, "{rule}");
        }
    }

    #[test]
    fn a_zscore_is_of_one_step_only() {
        let totals = AlertTotals::default();
        assert_eq!(totals.snapshot().grad_norm_zscore_of(Step(0)), None);
        totals.set_grad_norm_zscore(Step(4), 2.5);
        let newest = totals.snapshot();
        assert_eq!(newest.grad_norm_zscore_of(Step(4)), Some(2.5));
        assert_eq!([Step(3), Step(5)].map(|step| newest.grad_norm_zscore_of(step)), [None; 2]);
        totals.set_grad_norm_zscore(Step(5), f64::NAN);
        assert_eq!([Step(4), Step(5)].map(|step| totals.snapshot().grad_norm_zscore_of(step)), [None; 2]);
    }
}
