//! Counts the outcomes that an asynchronous exporter reports for its records.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use trainmon_core::AlertTotals;
use trainmon_exporters::DeliveryReport;
use trainmon_service::Notices;

use crate::sink_shared::SinkShared;

/// The counters of one exporter, and the receiver of its messages.
pub(crate) struct SinkDeliveryReport {
    pub(crate) shared: Arc<SinkShared>,
    pub(crate) alerts: Arc<AlertTotals>,
    pub(crate) notices: Notices,
}

impl SinkDeliveryReport {
    /// Calls `write` unless waiting has ended: everything without an outcome was then counted as abandoned.
    fn write(&self, write: impl FnOnce()) {
        let given_up = self.shared.given_up();
        if !*given_up {
            write();
        }
    }
}

impl DeliveryReport for SinkDeliveryReport {
    fn exported(&self, records: u64) {
        self.write(|| self.shared.ledger.exported(records));
    }

    fn failed(&self, records: u64) {
        self.write(|| self.shared.ledger.failed(records));
    }

    fn alerts_delivered(&self, alerts: u64) {
        self.write(|| {
            self.shared.alerts_waiting.fetch_sub(alerts, Ordering::Relaxed);
        });
    }

    fn alerts_lost(&self, alerts: u64) {
        self.write(|| {
            self.shared.alerts_waiting.fetch_sub(alerts, Ordering::Relaxed);
            self.alerts.lose(alerts);
        });
    }

    fn info(&self, message: &str) {
        self.notices.info(format!("{}: {message}", self.shared.name));
    }

    fn warn(&self, message: &str, hint: &str) {
        self.notices.warn(format!("{}: {message}", self.shared.name), Some(hint.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_without_a_fate_at_the_deadline_are_lost_and_what_comes_later_is_not_counted_twice() {
        let shared = Arc::new(SinkShared::new("otlp", 1));
        let alerts = Arc::<AlertTotals>::default();
        let settlement = SinkDeliveryReport {
            shared: Arc::clone(&shared),
            alerts: Arc::clone(&alerts),
            notices: Notices::new(|_| {}),
        };
        shared.alerts_waiting.fetch_add(5, Ordering::Relaxed);
        shared.ledger.accept(9);
        settlement.alerts_delivered(1);
        settlement.alerts_lost(1);
        settlement.exported(4);
        assert_eq!(alerts.snapshot().lost, 1);
        // Three are on their way when the waiting ends.
        assert_eq!(shared.give_up(&alerts), 5);
        settlement.alerts_delivered(2);
        settlement.alerts_lost(1);
        settlement.exported(5);
        assert_eq!(alerts.snapshot().lost, 4);
        assert!(shared.ledger.snapshot().balances(), "{:?}", shared.ledger.snapshot());
        assert_eq!(shared.give_up(&alerts), 0);
    }
}
