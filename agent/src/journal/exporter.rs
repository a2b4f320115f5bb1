//! The journal as an exporter. It has its own queue, thread and counters, so a disk that hangs delays no other exporter.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use trainmon_core::{Alert, StepBatch, TensorInfo};
use trainmon_exporters::{ExportError, ExportFailure, Exporter};

use super::JOURNAL;
use super::appender::Appender;

/// Writes alerts to the journal, and the steps that the training thread did not write.
pub(super) struct JournalExporter {
    appender: Arc<Mutex<Appender>>,
    locations: Vec<String>,
}

impl JournalExporter {
    pub(super) fn new(appender: Arc<Mutex<Appender>>, locations: Vec<String>) -> Self {
        Self { appender, locations }
    }
}

impl Exporter for JournalExporter {
    fn name(&self) -> &'static str {
        JOURNAL
    }

    fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
        let outcome = self.appender.lock().append_queued(names, batch);
        outcome.map_err(|source| ExportFailure { lost_records: batch.records.len() as u64, source })
    }

    fn alert(&mut self, alert: &Alert) -> Result<(), ExportError> {
        // Cannot fail: all keys of an alert are strings, and JSON can represent its values.
        let line = serde_json::to_vec(alert).unwrap_or_default();
        self.appender.lock().append_alert(&line)
    }

    /// Marks the run as ended in order and waits for the disk without a limit: the wait for this thread has a deadline.
    /// Written data survives the end of the process in any case.
    fn shutdown(&mut self, _deadline: Instant) -> Result<(), ExportError> {
        let (closed, flushes) = self.appender.lock().close();
        if let Some(flushes) = flushes {
            flushes.close();
        }
        closed
    }

    fn locations(&self) -> Vec<String> {
        self.locations.clone()
    }
}
