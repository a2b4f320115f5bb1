//! What an exporter that delivers later says of its records, written into the books it is run with.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trainmon_core::{AlertBook, Step, StepBatch};
use trainmon_dump::journal::JournalView;
use trainmon_exporters::{Settlement, otlp::Backlog};

use crate::books::SinkShared;
use crate::notice::Voice;

/// The books of one exporter, and who hears of it.
pub(crate) struct SinkSettlement {
    pub(crate) shared: Arc<SinkShared>,
    pub(crate) alerts: Arc<AlertBook>,
    pub(crate) voice: Voice,
}

impl SinkSettlement {
    /// Writes while somebody still waits: what comes later is abandoned already, and has its fate.
    fn write(&self, write: impl FnOnce()) {
        let given_up = self.shared.given_up();
        if !*given_up {
            write();
        }
    }
}

impl Settlement for SinkSettlement {
    fn exported(&self, records: u64) {
        self.write(|| self.shared.ledger.exported(records));
    }

    fn failed(&self, records: u64) {
        self.write(|| self.shared.ledger.failed(records));
    }

    fn alerts_delivered(&self, alerts: u64) {
        self.write(|| drop(self.shared.alerts_waiting.fetch_sub(alerts, Ordering::Relaxed)));
    }

    fn alerts_lost(&self, alerts: u64) {
        self.write(|| {
            self.shared.alerts_waiting.fetch_sub(alerts, Ordering::Relaxed);
            self.alerts.lose(alerts);
        });
    }

    fn info(&self, message: &str) {
        self.voice.info(format!("{}: {message}", self.shared.name));
    }

    fn warn(&self, message: &str, hint: &str) {
        self.voice.warn(format!("{}: {message}", self.shared.name), Some(hint.to_owned()));
    }
}

/// The journal as the place where an exporter reads steps again.
pub(crate) struct JournalBacklog(pub(crate) JournalView);

impl Backlog for JournalBacklog {
    fn held(&self) -> Option<(Step, Step)> {
        self.0.held()
    }

    fn read(&self, range: RangeInclusive<Step>) -> Vec<StepBatch> {
        self.0.read_steps(range)
    }
}
