//! The trait of all exporters.

use std::sync::Arc;
use std::time::Instant;

use trainmon_core::{Alert, StepBatch, TensorInfo};

use crate::{ExportError, ExportFailure};

/// Receives the outcome of deliveries that complete after [`Exporter::export`] has returned, from any thread. Every
/// accepted record and alert has one outcome; one without any by the end of shutdown counts as abandoned, or lost.
pub trait DeliveryReport: Send + Sync {
    /// Counts delivered records.
    fn exported(&self, records: u64);
    /// Counts records that will never be delivered.
    fn failed(&self, records: u64);
    /// Counts alerts accepted by [`Exporter::alert`] that were delivered, or have no destination.
    fn alerts_delivered(&self, alerts: u64);
    /// Counts alerts accepted by [`Exporter::alert`] that will never be delivered.
    fn alerts_lost(&self, alerts: u64);
    /// Prints an informational message, prefixed with the exporter's name.
    fn info(&self, message: &str);
    /// Prints a warning, prefixed with the exporter's name.
    fn warn(&self, message: &str, hint: &str);
}

/// Exports step batches on its own thread. Only that thread calls it, in step order.
pub trait Exporter: Send {
    /// The `sink` label and thread name: `csv`, `prometheus`.
    fn name(&self) -> &'static str;

    /// Called once, on the exporter's thread, before anything else. An exporter whose deliveries outlast
    /// [`export`](Self::export) keeps the report and returns true. A successful `export` then only means that the batch
    /// was accepted, and [`shutdown`](Self::shutdown) receives the monitor's deadline.
    fn reports_deliveries(&mut self, report: &Arc<dyn DeliveryReport>) -> bool {
        let _ = report;
        false
    }

    /// Delivers one batch. `names[record.tensor.index()]` is the record's tensor.
    ///
    /// Returns once the batch is as safe as this exporter can make it: a CSV's rows are with the operating system.
    ///
    /// # Errors
    /// The failure contains the number of lost records, which count as failed.
    fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure>;

    /// Delivers one alert: after the batch of its step, before the next one's. Exporters without alerts keep the
    /// default implementation ([`takes_alerts`](Self::takes_alerts)).
    ///
    /// # Errors
    /// The alert is lost to this exporter and counted as such.
    fn alert(&mut self, alert: &Alert) -> Result<(), ExportError> {
        let _ = alert;
        Ok(())
    }

    /// Whether it exports alerts. If not, it receives none, and a full queue loses none.
    fn takes_alerts(&self) -> bool {
        true
    }

    /// A one-time message for the user about the output so far. Called after each batch.
    fn remark(&mut self) -> Option<String> {
        None
    }

    /// A one-time warning for the user. Called after each batch, and at the end.
    fn warning(&mut self) -> Option<String> {
        None
    }

    /// Flushes and closes the output by `deadline`.
    ///
    /// # Errors
    /// Exported batches stay exported; the error is reported.
    fn shutdown(&mut self, deadline: Instant) -> Result<(), ExportError>;

    /// Whether its thread takes a lock that the training thread also takes (for example, an interpreter's). The thread
    /// then runs at normal priority, so that the training does not wait for a low-priority thread.
    fn shares_a_lock(&self) -> bool {
        false
    }

    /// The locations of the output, one line each: a directory, an address.
    fn locations(&self) -> Vec<String>;
}
