//! What the alerts amount to: counters that everyone may read while the worker writes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::{AlertMarks, AlertRule, Step};

/// Counters and a gauge publish no other memory, so atomicity alone is enough.
const COUNT: Ordering = Ordering::Relaxed;

/// The books of the alerts. Every finding counts, also those that are not said because the alert goes on.
#[derive(Debug, Default)]
pub struct AlertTotals {
    findings: [AtomicU64; AlertRule::ALL.len()],
    grad_norm_spikes: AtomicU64,
    update_norm_spikes: AtomicU64,
    /// Step and value belong together. Held for a copy only, by the worker once per step.
    grad_norm_zscore: Mutex<Option<(Step, f64)>>,
    lost: AtomicU64,
    series_overflow: AtomicU64,
    /// Nanoseconds.
    looking: AtomicU64,
    marks: AlertMarks,
}

/// An [`AlertTotals`] read at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlertBookSnapshot {
    /// Findings by rule, in the order of [`AlertRule::ALL`].
    pub findings: [u64; AlertRule::ALL.len()],
    /// Steps in which the global gradient norm spiked.
    pub grad_norm_spikes: u64,
    /// Steps in which the global update norm spiked.
    pub update_norm_spikes: u64,
    /// The newest distance of the global gradient norm from its recent mean, in standard deviations, and whose step's it
    /// is. NaN for a norm that is NaN; `None` while there is no scatter to measure by.
    pub grad_norm_zscore: Option<(Step, f64)>,
    /// Alerts that some action or exporter did not get: a queue was full, a webhook failed.
    pub lost: u64,
    /// Values that no rule looked at because there were too many series.
    pub series_overflow: u64,
    /// Time the worker spent looking at steps.
    pub looking: Duration,
}

impl AlertTotals {
    /// A rule found something.
    pub fn found(&self, rule: AlertRule) {
        self.findings[rule as usize].fetch_add(1, COUNT);
    }

    /// The global gradient norm spiked.
    pub fn grad_norm_spiked(&self) {
        self.grad_norm_spikes.fetch_add(1, COUNT);
    }

    /// The global update norm spiked.
    pub fn update_norm_spiked(&self) {
        self.update_norm_spikes.fetch_add(1, COUNT);
    }

    /// The distance of this step's global gradient norm from its recent mean, in standard deviations.
    pub fn set_grad_norm_zscore(&self, step: Step, zscore: f64) {
        *self.grad_norm_zscore.lock() = Some((step, zscore));
    }

    /// This many alerts did not reach an action or exporter.
    pub fn lose(&self, alerts: u64) {
        self.lost.fetch_add(alerts, COUNT);
    }

    /// This many values were not looked at.
    pub fn overflow(&self, values: u64) {
        self.series_overflow.fetch_add(values, COUNT);
    }

    /// A step was looked at.
    pub fn looked(&self, time: Duration) {
        self.looking.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), COUNT);
    }

    /// Where the latest incident of each rule began.
    pub fn marks(&self) -> &AlertMarks {
        &self.marks
    }

    /// The books now.
    pub fn snapshot(&self) -> AlertBookSnapshot {
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
        AlertBookSnapshot {
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

impl AlertBookSnapshot {
    /// Findings of one rule.
    pub fn findings_of(&self, rule: AlertRule) -> u64 {
        self.findings[rule as usize]
    }

    /// The gradient norm's z-score of this step: `None` where the newest is another step's, or not a number.
    pub fn grad_norm_zscore_of(&self, step: Step) -> Option<f64> {
        self.grad_norm_zscore.filter(|&(of, zscore)| of == step && !zscore.is_nan()).map(|(_, zscore)| zscore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_counter_of_its_own() {
        let book = AlertTotals::default();
        assert_eq!(book.snapshot().grad_norm_zscore, None);
        for (times, rule) in AlertRule::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| book.found(rule));
        }
        for (times, rule) in AlertRule::ALL.into_iter().enumerate() {
            assert_eq!(book.snapshot().findings_of(rule), times as u64, "{rule}");
        }
    }

    #[test]
    fn a_zscore_is_of_one_step_only() {
        let book = AlertTotals::default();
        assert_eq!(book.snapshot().grad_norm_zscore_of(Step(0)), None);
        book.set_grad_norm_zscore(Step(4), 2.5);
        let newest = book.snapshot();
        assert_eq!(newest.grad_norm_zscore_of(Step(4)), Some(2.5));
        assert_eq!([Step(3), Step(5)].map(|step| newest.grad_norm_zscore_of(step)), [None; 2]);
        book.set_grad_norm_zscore(Step(5), f64::NAN);
        assert_eq!([Step(4), Step(5)].map(|step| book.snapshot().grad_norm_zscore_of(step)), [None; 2]);
    }
}
