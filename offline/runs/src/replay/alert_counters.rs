//! The counters of a recorded run's alerts, as they stood after each step.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use trainmon_core::{Alert, AlertPhase, AlertRule, AlertScope, AlertSignal, AlertTotals, Kind, Step};

/// Alerts that wait for their steps, oldest first.
pub(super) struct AlertCounters {
    waiting: VecDeque<Alert>,
    pub(super) book: Arc<AlertTotals>,
}

impl AlertCounters {
    /// Of alerts in the order of their steps.
    pub(super) fn new(alerts: Vec<Alert>) -> Self {
        Self { waiting: alerts.into(), book: Arc::default() }
    }

    /// Counts the alerts up to a step. Gives them; one that kept no time has that of the step.
    pub(super) fn advance(&mut self, step: Step, time: SystemTime) -> Vec<Alert> {
        let mut found = Vec::new();
        while let Some(mut alert) = self.waiting.pop_front_if(|alert| alert.step <= step) {
            self.count(&alert);
            if alert.time == SystemTime::UNIX_EPOCH {
                alert.time = time;
            }
            found.push(alert);
        }
        found
    }

    fn count(&self, alert: &Alert) {
        // The first finding was counted when the alert began; the one that ends it is none.
        let findings = match alert.phase {
            AlertPhase::Begins => alert.findings,
            AlertPhase::Ends => alert.findings.saturating_sub(1),
        };
        let is_global_spike = alert.rule == AlertRule::Spike && alert.series.scope == AlertScope::Global;
        for _ in 0..findings {
            self.book.found(alert.rule);
            match alert.series.signal {
                AlertSignal::Grad if is_global_spike => self.book.grad_norm_spiked(),
                AlertSignal::Kind(Kind::Update) if is_global_spike => self.book.update_norm_spiked(),
                _ => {}
            }
        }
    }
}
