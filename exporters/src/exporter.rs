//! The one trait an exporter fulfils.

use std::sync::Arc;
use std::time::Instant;

use trainmon_core::{Alert, StepBatch, TensorInfo};

use crate::{ExportError, ExportFailure};

/// Through which an exporter that delivers later than [`Exporter::export`] returns tells what became of its records, from
/// any thread. Every accepted record and alert has one fate; one without any by the end of shutdown counts as abandoned,
/// or lost.
pub trait DeliveryReport: Send + Sync {
    /// So many records have arrived.
    fn exported(&self, records: u64);
    /// So many records never will.
    fn failed(&self, records: u64);
    /// So many alerts that were taken by [`Exporter::alert`] have arrived, or there is no place where they could.
    fn alerts_delivered(&self, alerts: u64);
    /// So many alerts that were taken by [`Exporter::alert`] never will arrive.
    fn alerts_lost(&self, alerts: u64);
    /// Says something good to know; the exporter's name is put in front.
    fn info(&self, message: &str);
    /// Warns; the exporter's name is put in front.
    fn warn(&self, message: &str, hint: &str);
}

/// Takes step batches, on a thread of its own. Only that thread calls it, in step order.
pub trait Exporter: Send {
    /// The `sink` label and thread name: `csv`, `prometheus`.
    fn name(&self) -> &'static str;

    /// Called once, on the exporter's thread, before anything else. An exporter whose deliveries outlast
    /// [`export`](Self::export) keeps the report and returns true: that `export` succeeds then means no more than
    /// that the batch was taken, and [`shutdown`](Self::shutdown) is given the monitor's deadline.
    fn reports_deliveries(&mut self, report: &Arc<dyn DeliveryReport>) -> bool {
        let _ = report;
        false
    }

    /// Delivers one batch. `names[record.tensor.index()]` is the record's tensor.
    ///
    /// Returns once the batch is as safe as this exporter can make it: a CSV's rows are with the operating system.
    ///
    /// # Errors
    /// The failure says how many records are lost; they count as failed.
    fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure>;

    /// Delivers one alert: after the batch of the step it was found in, before the next one's. An exporter that has no
    /// place for alerts leaves this as it is, and says so ([`takes_alerts`](Self::takes_alerts)).
    ///
    /// # Errors
    /// The alert is lost to this exporter; it counts as such.
    fn alert(&mut self, alert: &Alert) -> Result<(), ExportError> {
        let _ = alert;
        Ok(())
    }

    /// Whether it has a place for alerts. One that has none is offered none, and loses none where its queue is full.
    fn takes_alerts(&self) -> bool {
        true
    }

    /// Something the user should know of what was written so far, once. Asked after each batch.
    fn remark(&mut self) -> Option<String> {
        None
    }

    /// Something that went other than the user may have wished, once. Asked after each batch, and at the end.
    fn warning(&mut self) -> Option<String> {
        None
    }

    /// Finishes: flushes what is buffered and closes, by `deadline`.
    ///
    /// # Errors
    /// What was exported stays exported; the error is reported.
    fn shutdown(&mut self, deadline: Instant) -> Result<(), ExportError>;

    /// Whether it takes a lock on its thread that the training thread takes, too (an interpreter's, say): the thread then
    /// runs with the priority of the others, lest the training wait for one whose turn does not come.
    fn shares_a_lock(&self) -> bool {
        false
    }

    /// Where the user finds what was written, one line each: a directory, an address.
    fn whereabouts(&self) -> Vec<String>;
}
