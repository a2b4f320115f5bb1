//! The alert counters of a recorded run after each step.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use trainmon_core::{Alert, AlertEnd, AlertPhase, AlertRule, AlertScope, AlertSignal, AlertTotals, Kind, Step};

/// Alerts of later steps, oldest first.
pub(super) struct AlertCounters {
    waiting: VecDeque<Alert>,
    /// The run's own final counts.
    end: Option<AlertEnd>,
    pub(super) totals: Arc<AlertTotals>,
}

impl AlertCounters {
    /// Creates the counters from alerts in the order of their steps, and the run's own final counts.
    pub(super) fn new(alerts: Vec<Alert>, end: Option<AlertEnd>) -> Self {
        Self { waiting: alerts.into(), end, totals: Arc::default() }
    }

    /// Counts the alerts up to a step and returns them; alerts without a time have that of the step.
    pub(super) fn advance(&mut self, step: Step, time: SystemTime) -> Vec<Alert> {
        let mut found = Vec::new();
        while let Some(mut alert) = self.waiting.pop_front_if(|alert| alert.step <= step) {
            self.count(&alert);
            if alert.time == SystemTime::UNIX_EPOCH {
                alert.time = time;
            }
            found.push(alert);
        }
        if self.waiting.is_empty()
            && let Some(end) = self.end.take()
        {
            self.top_up(&end);
        }
        found
    }

    /// Adds findings of alerts that were active to the end, and of unreported ones.
    fn top_up(&self, end: &AlertEnd) {
        for (&rule, &findings) in &end.findings {
            let counted = self.totals.snapshot().findings_of(rule);
            (counted..findings).for_each(|_| self.totals.found(rule));
        }
    }

    fn count(&self, alert: &Alert) {
        // The first finding was counted when the alert began; its end is not a finding.
        let findings = match alert.phase {
            AlertPhase::Begins => alert.findings,
            AlertPhase::Ends => alert.findings.saturating_sub(1),
        };
        let is_global_spike = alert.rule == AlertRule::Spike && alert.series.scope == AlertScope::Global;
        for _ in 0..findings {
            self.totals.found(alert.rule);
            match alert.series.signal {
                AlertSignal::Grad if is_global_spike => self.totals.grad_norm_spiked(),
                AlertSignal::Kind(Kind::Update) if is_global_spike => self.totals.update_norm_spiked(),
                _ => {}
            }
        }
    }
}
