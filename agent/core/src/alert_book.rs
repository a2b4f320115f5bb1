//! What the alerts amount to: counters that everyone may read while the worker writes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::AlertRule;

/// Counters and a gauge publish no other memory, so atomicity alone is enough.
const COUNT: Ordering = Ordering::Relaxed;

/// The books of the alerts. Every finding counts, also those that are not said because the alert goes on.
#[derive(Debug)]
pub struct AlertBook {
    findings: [AtomicU64; AlertRule::ALL.len()],
    grad_norm_spikes: AtomicU64,
    update_norm_spikes: AtomicU64,
    /// Bits of a float64; NaN until there is one.
    grad_norm_zscore: AtomicU64,
    lost: AtomicU64,
    series_overflow: AtomicU64,
    /// Nanoseconds.
    looking: AtomicU64,
}

/// An [`AlertBook`] read at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlertBookSnapshot {
    /// Findings by rule, in the order of [`AlertRule::ALL`].
    pub findings: [u64; AlertRule::ALL.len()],
    /// Steps in which the global gradient norm spiked.
    pub grad_norm_spikes: u64,
    /// Steps in which the global update norm spiked.
    pub update_norm_spikes: u64,
    /// The global gradient norm's distance from its recent mean in standard deviations; NaN while unknown.
    pub grad_norm_zscore: f64,
    /// Alerts that some action or exporter did not get: a queue was full, a webhook failed.
    pub lost: u64,
    /// Values that no rule looked at because there were too many series.
    pub series_overflow: u64,
    /// Time the worker spent looking at steps.
    pub looking: Duration,
}

impl Default for AlertBook {
    fn default() -> Self {
        Self {
            findings: Default::default(),
            grad_norm_spikes: AtomicU64::new(0),
            update_norm_spikes: AtomicU64::new(0),
            grad_norm_zscore: AtomicU64::new(f64::NAN.to_bits()),
            lost: AtomicU64::new(0),
            series_overflow: AtomicU64::new(0),
            looking: AtomicU64::new(0),
        }
    }
}

impl AlertBook {
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

    /// The global gradient norm's distance from its recent mean, in standard deviations.
    pub fn set_grad_norm_zscore(&self, zscore: f64) {
        self.grad_norm_zscore.store(zscore.to_bits(), COUNT);
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

    /// The books now.
    pub fn snapshot(&self) -> AlertBookSnapshot {
        let Self { findings, grad_norm_spikes, update_norm_spikes, grad_norm_zscore, lost, series_overflow, looking } =
            self;
        AlertBookSnapshot {
            findings: std::array::from_fn(|rule| findings[rule].load(COUNT)),
            grad_norm_spikes: grad_norm_spikes.load(COUNT),
            update_norm_spikes: update_norm_spikes.load(COUNT),
            grad_norm_zscore: f64::from_bits(grad_norm_zscore.load(COUNT)),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_counter_of_its_own() {
        let book = AlertBook::default();
        assert!(book.snapshot().grad_norm_zscore.is_nan());
        for (times, rule) in AlertRule::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| book.found(rule));
        }
        for (times, rule) in AlertRule::ALL.into_iter().enumerate() {
            assert_eq!(book.snapshot().findings_of(rule), times as u64, "{rule}");
        }
    }
}
