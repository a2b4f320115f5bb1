//! The journal as an exporter: it has a queue, a thread and books like any other, so a disk that hangs starves nobody else.
//!
//! It differs in two things. The worker lets it go first and waits a moment, so that a step is in the journal before any
//! other exporter sees it. And waiting for the disk is the business of a thread of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use trainmon_core::{Alert, StepBatch, TensorInfo};
use trainmon_dump::journal::{Journal, JournalError, JournalView};
use trainmon_exporters::{ExportError, ExportFailure, Exporter, JournalSource};

use crate::books::SinkShared;
use crate::guard::panic_text;
use crate::notice::{Voice, with_causes};
use crate::outputs::Output;
use crate::priority::step_back;

/// The `sink` label of the journal's books.
pub(crate) const JOURNAL: &str = "journal";
/// Steps of a millisecond must not keep the disk busy without end.
const LEAST_BETWEEN_FLUSHES: Duration = Duration::from_secs(1);

/// A journal file and the books it will be written with.
pub(crate) struct OpenJournal {
    pub(crate) journal: Journal,
    pub(crate) shared: Arc<SinkShared>,
    pub(crate) source: JournalSource,
    flush_steps: u64,
}

impl OpenJournal {
    /// Empty books for a file just made.
    pub(crate) fn new(journal: Journal, flush_steps: u64, queue_steps: usize) -> Self {
        let shared = Arc::new(SinkShared::new(JOURNAL, queue_steps));
        Self { journal, shared, source: JournalSource::default(), flush_steps }
    }

    /// Where the file is.
    pub(crate) fn whereabouts(&self) -> Vec<String> {
        vec![self.journal.path().display().to_string()]
    }

    /// Starts the thread that flushes and gives what the sink is made of.
    pub(crate) fn start(self, voice: Voice) -> Result<Output, std::io::Error> {
        let whereabouts = self.whereabouts();
        let Self { journal, shared, source, flush_steps } = self;
        let flusher = Flusher::start(journal.view(), source.clone(), voice)?;
        // What the file begins with is all that is needed to make sense of the rest.
        flusher.ask();
        let flushes = FlushCadence { every: flush_steps, steps: 0, last: Instant::now(), flusher };
        let exporter = JournalExporter { journal: Some(journal), source, flushes: Some(flushes), whereabouts };
        Ok(Output { exporter: Box::new(exporter), shared })
    }
}

/// Writes steps and alerts to the journal.
struct JournalExporter {
    /// `None` once closed.
    journal: Option<Journal>,
    source: JournalSource,
    /// `None` once closed.
    flushes: Option<FlushCadence>,
    whereabouts: Vec<String>,
}

impl JournalExporter {
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
}

fn of_journal(error: &JournalError) -> ExportError {
    ExportError::Other { message: with_causes(error), hint: error.hint() }
}

impl Exporter for JournalExporter {
    fn name(&self) -> &'static str {
        JOURNAL
    }

    fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
        let outcome = self.count(|journal| journal.append(names, batch));
        if let Some(flushes) = &mut self.flushes {
            flushes.step();
        }
        outcome.map_err(|source| ExportFailure { lost_records: batch.records.len() as u64, source })
    }

    fn alert(&mut self, alert: &Alert) -> Result<(), ExportError> {
        // An alert has neither keys that are no text nor anything else that JSON refuses.
        let line = serde_json::to_vec(alert).unwrap_or_default();
        self.count(|journal| journal.append_alert(&line))
    }

    /// Notes that the run ended in order and waits for the disk, however long: whoever waits for this thread has a
    /// deadline. What was written survives the process's end in any case.
    fn shutdown(&mut self, _deadline: Instant) -> Result<(), ExportError> {
        let closed = self.journal.take().map_or(Ok(()), Journal::close);
        if let Some(flushes) = self.flushes.take() {
            flushes.flusher.close();
        }
        closed.map_err(|error| of_journal(&error))
    }

    fn whereabouts(&self) -> Vec<String> {
        self.whereabouts.clone()
    }
}

/// When it is time to flush.
struct FlushCadence {
    /// 0: never.
    every: u64,
    /// Since the last flush.
    steps: u64,
    last: Instant,
    flusher: Flusher,
}

impl FlushCadence {
    fn step(&mut self) {
        self.steps += 1;
        if self.every > 0 && self.steps >= self.every && self.last.elapsed() >= LEAST_BETWEEN_FLUSHES {
            (self.steps, self.last) = (0, Instant::now());
            self.flusher.ask();
        }
    }
}

/// Waits for the disk so that no step need.
struct Flusher {
    asked: Sender<()>,
    done: Receiver<()>,
}

impl Flusher {
    fn start(view: JournalView, source: JournalSource, voice: Voice) -> Result<Self, std::io::Error> {
        let (asked, requests) = bounded(1);
        let (alive, done) = bounded(0);
        std::thread::Builder::new().name("trainmon-flush".to_owned()).spawn(move || {
            // Dropped when the thread ends, however it ends: that is what `close` waits for.
            let _alive: Sender<()> = alive;
            step_back();
            let mut is_failing = false;
            let mut flush = || match view.flush() {
                Ok(()) => is_failing = false,
                Err(error) => {
                    source.errors.fetch_add(1, Ordering::Relaxed);
                    if !std::mem::replace(&mut is_failing, true) {
                        voice.warn(format!("journal: {}", with_causes(&error)), Some(error.hint().to_owned()));
                    }
                }
            };
            requests.iter().for_each(|()| flush());
            flush();
        })?;
        Ok(Self { asked, done })
    }

    /// Asks for a flush; while one is going on and another waits already, this one is that.
    fn ask(&self) {
        let _one_is_waiting = self.asked.try_send(());
    }

    /// Waits for the last flush.
    fn close(self) {
        drop(self.asked);
        // It ends by dropping its side; nothing is ever sent.
        let _disconnected = self.done.recv();
    }
}
