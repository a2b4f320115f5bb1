//! The journal as an exporter: it has a queue, a thread and books like any other, so a disk that hangs starves nobody else.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use trainmon_core::{Alert, StepBatch, TensorInfo};
use trainmon_exporters::{ExportError, ExportFailure, Exporter};

use super::JOURNAL;
use super::appender::Appender;

/// Writes alerts to the journal, and the steps that the training thread did not.
pub(super) struct JournalExporter {
    appender: Arc<Mutex<Appender>>,
    whereabouts: Vec<String>,
}

impl JournalExporter {
    pub(super) fn new(appender: Arc<Mutex<Appender>>, whereabouts: Vec<String>) -> Self {
        Self { appender, whereabouts }
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
        // An alert has neither keys that are no text nor anything else that JSON refuses.
        let line = serde_json::to_vec(alert).unwrap_or_default();
        self.appender.lock().append_alert(&line)
    }

    /// Notes that the run ended in order and waits for the disk, however long: whoever waits for this thread has a
    /// deadline. What was written survives the process's end in any case.
    fn shutdown(&mut self, _deadline: Instant) -> Result<(), ExportError> {
        let (closed, flushes) = self.appender.lock().close();
        if let Some(flushes) = flushes {
            flushes.close();
        }
        closed
    }

    fn whereabouts(&self) -> Vec<String> {
        self.whereabouts.clone()
    }
}
