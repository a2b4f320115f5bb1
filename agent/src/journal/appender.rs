//! Writes steps and alerts to the journal, from any thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use trainmon_core::{Step, StepBatch, TensorInfo, with_causes};
use trainmon_exporters::{ExportError, JournalSource};
use trainmon_journal::{Journal, JournalError};
use trainmon_service::panic_text;

use super::flush::FlushCadence;

/// The write access to the journal. Its lock is held while one step or one alert is written.
pub(super) struct Appender {
    /// `None` once closed.
    journal: Option<Journal>,
    source: JournalSource,
    /// `None` once closed.
    flushes: Option<FlushCadence>,
    /// The step that the training thread failed to append, with the error. The journal's sink counts and reports it.
    refused: Option<(Step, ExportError)>,
}

impl Appender {
    pub(super) fn new(journal: Journal, source: JournalSource, flushes: FlushCadence) -> Self {
        Self { journal: Some(journal), source, flushes: Some(flushes), refused: None }
    }

    /// Appends a step in the training thread. Returns `false` if the journal's sink must handle the step instead.
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

    /// Appends a step that came through the queues.
    pub(super) fn append_queued(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportError> {
        match self.refused.take_if(|(step, _)| *step == batch.step) {
            // The training thread has tried it and counted the error.
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

    /// Runs `write` and counts the written bytes or the error.
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
                hint: "this is a bug in trainmon: please report it",
            }),
        }
    }

    /// Marks the run as ended in order, and returns the flushes to wait for. Nothing is appended afterwards.
    pub(super) fn close(&mut self) -> (Result<(), ExportError>, Option<FlushCadence>) {
        let closed = self.journal.take().map_or(Ok(()), Journal::close);
        (closed.map_err(|error| of_journal(&error)), self.flushes.take())
    }
}

fn of_journal(error: &JournalError) -> ExportError {
    ExportError::Other { message: with_causes(error), hint: error.hint() }
}
