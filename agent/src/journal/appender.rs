//! Writes steps and alerts to the journal, whichever thread they come from.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use trainmon_core::{Step, StepBatch, TensorInfo, with_causes};
use trainmon_exporters::{ExportError, JournalSource};
use trainmon_journal::{Journal, JournalError};
use trainmon_service::panic_text;

use super::flush::FlushCadence;

/// The writing end, behind one lock that is held while one step or one alert is written.
pub(super) struct Appender {
    /// `None` once closed.
    journal: Option<Journal>,
    source: JournalSource,
    /// `None` once closed.
    flushes: Option<FlushCadence>,
    /// The step that could not be appended in the training thread, and why: its sink books that and says it.
    refused: Option<(Step, ExportError)>,
}

impl Appender {
    pub(super) fn new(journal: Journal, source: JournalSource, flushes: FlushCadence) -> Self {
        Self { journal: Some(journal), source, flushes: Some(flushes), refused: None }
    }

    /// Appends a step in the training thread. `false`: it is not in the journal, and the journal's sink is to have it.
    pub(super) fn append_in_step(&mut self, names: &[TensorInfo], batch: &StepBatch) -> bool {
        if self.journal.is_none() {
            return false;
        }
        match self.append(names, batch) {
            Ok(()) => true,
            Err(error) => {
                self.refused = Some((batch.step, error));
                false
            }
        }
    }

    /// Appends a step that came by the queues.
    pub(super) fn append_queued(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportError> {
        match self.refused.take_if(|(step, _)| *step == batch.step) {
            // It was tried, and what there is to note of it is noted.
            Some((_, error)) => Err(error),
            None => self.append(names, batch),
        }
    }

    fn append(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportError> {
        let outcome = self.count(|journal| journal.append(names, batch));
        if let Some(flushes) = &mut self.flushes {
            flushes.step();
        }
        outcome
    }

    pub(super) fn append_alert(&mut self, line: &[u8]) -> Result<(), ExportError> {
        self.count(|journal| journal.append_alert(line))
    }

    /// Writes, and counts what came of it.
    fn count(&mut self, write: impl FnOnce(&mut Journal) -> Result<u64, JournalError>) -> Result<(), ExportError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let outcome = catch_unwind(AssertUnwindSafe(|| write(journal)));
        if !matches!(outcome, Ok(Ok(_))) {
            self.source.errors.fetch_add(1, Ordering::Relaxed);
        }
        match outcome {
            Ok(Ok(bytes)) => {
                self.source.bytes.fetch_add(bytes, Ordering::Relaxed);
                Ok(())
            }
            Ok(Err(error)) => Err(of_journal(&error)),
            Err(panic) => Err(ExportError::Other {
                message: panic_text(&*panic),
                hint: "this is a fault of trainmon: please report it",
            }),
        }
    }

    /// Notes that the run ended in order, and gives what is left to wait for. Nothing is appended any more.
    pub(super) fn close(&mut self) -> (Result<(), ExportError>, Option<FlushCadence>) {
        let closed = self.journal.take().map_or(Ok(()), Journal::close);
        (closed.map_err(|error| of_journal(&error)), self.flushes.take())
    }
}

fn of_journal(error: &JournalError) -> ExportError {
    ExportError::Other { message: with_causes(error), hint: error.hint() }
}
