//! The counters of a recorded run's alerts, as they stood after each step.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use trainmon_core::{Alert, AlertEnd, AlertPhase, AlertRule, AlertScope, AlertSignal, AlertTotals, Kind, Step};

/// Alerts that wait for their steps, oldest first.
pub(super) struct AlertCounters {
    waiting: VecDeque<Alert>,
    /// What the run itself counted in the end.
    end: Option<AlertEnd>,
    pub(super) book: Arc<AlertTotals>,
}

impl AlertCounters {
    /// Of alerts in the order of their steps, and what the run counted in the end.
    pub(super) fn new(alerts: Vec<Alert>, end: Option<AlertEnd>) -> Self {
        Self { waiting: alerts.into(), end, book: Arc::default() }
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
        if self.waiting.is_empty()
            && let Some(end) = self.end.take()
        {
            self.top_up(&end);
        }
        found
    }

    /// Findings of alerts that went on to the end, and of those that were not said.
    fn top_up(&self, end: &AlertEnd) {
        for (&rule, &findings) in &end.findings {
            let counted = self.book.snapshot().findings_of(rule);
            (counted..findings).for_each(|_| self.book.found(rule));
        }
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
