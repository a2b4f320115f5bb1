//! The journal's place in the worker: a step is in it before any exporter is given it, and so survives whatever ends the
//! process from then on.
//!
//! Appending is a copy into memory the kernel keeps; waiting for the disk is the business of a thread of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use trainmon_core::{Alert, Phase, StepBatch, TensorInfo};
use trainmon_dump::journal::{Journal, JournalError, JournalView};
use trainmon_exporters::JournalSource;

use crate::books::SinkShared;
use crate::guard::panic_text;
use crate::notice::{Voice, with_causes};
use crate::priority::step_back;
use crate::sink::{Delivery, SinkContext};

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
    pub(crate) fn new(journal: Journal, flush_steps: u64) -> Self {
        // There is no queue: a step is in the journal or it failed.
        let shared = Arc::new(SinkShared::new(JOURNAL, 0));
        Self { journal, shared, source: JournalSource::default(), flush_steps }
    }

    /// Where the file is.
    pub(crate) fn whereabouts(&self) -> Vec<String> {
        vec![self.journal.path().display().to_string()]
    }
}

/// The worker's journal.
pub(crate) struct JournalSink {
    journal: Journal,
    shared: Arc<SinkShared>,
    source: JournalSource,
    flushes: FlushCadence,
    context: SinkContext,
    known: Vec<TensorInfo>,
    /// Records lost since writing began to fail; `None` while it works.
    failing_since: Option<u64>,
}

impl JournalSink {
    /// Takes up a journal and starts the thread that flushes it.
    pub(crate) fn start(open: OpenJournal, context: SinkContext) -> Result<Self, std::io::Error> {
        let OpenJournal { journal, shared, source, flush_steps } = open;
        let flusher = Flusher::start(journal.view(), source.clone(), context.voice.clone())?;
        // What the file begins with is all that is needed to make sense of the rest.
        flusher.ask();
        let flushes = FlushCadence { every: flush_steps, steps: 0, last: Instant::now(), flusher };
        Ok(Self { journal, shared, source, flushes, context, known: Vec::new(), failing_since: None })
    }

    /// Writes a step and what was found in it.
    pub(crate) fn take(&mut self, delivery: &Delivery) {
        let start = Instant::now();
        if let Some(batch) = &delivery.batch {
            self.step(batch);
            self.flushes.step();
        }
        for alert in &delivery.alerts {
            self.alert(alert);
        }
        self.context.costs.add(Phase::Export, start.elapsed());
    }

    fn step(&mut self, batch: &StepBatch) {
        let records = batch.records.len() as u64;
        self.shared.ledger.accept(records);
        self.context.tensors.sync_into(&mut self.known);
        let Self { journal, known, .. } = self;
        let outcome = catch_unwind(AssertUnwindSafe(|| journal.append(known, batch)));
        let problem = self.problem_of(outcome);
        if problem.is_some() {
            self.shared.ledger.failed(records);
        } else {
            self.shared.ledger.exported(records);
        }
        self.tell(records, problem);
    }

    fn alert(&mut self, alert: &Alert) {
        let Self { journal, .. } = self;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // An alert has neither keys that are no text nor anything else that JSON refuses.
            journal.append_alert(&serde_json::to_vec(alert).unwrap_or_default())
        }));
        let problem = self.problem_of(outcome);
        if problem.is_some() {
            self.context.alerts.lose(1);
        }
        self.tell(0, problem);
    }

    /// Counts what a write came to.
    fn problem_of(
        &self,
        outcome: std::thread::Result<Result<u64, JournalError>>,
    ) -> Option<(String, Option<&'static str>)> {
        let problem = match outcome {
            Ok(Ok(bytes)) => {
                self.source.bytes.fetch_add(bytes, Ordering::Relaxed);
                return None;
            }
            Ok(Err(error)) => (with_causes(&error), Some(error.hint())),
            Err(panic) => (panic_text(&*panic), None),
        };
        self.source.errors.fetch_add(1, Ordering::Relaxed);
        Some(problem)
    }

    /// Speaks when writing begins to fail and when it works again, not in between.
    fn tell(&mut self, lost: u64, problem: Option<(String, Option<&'static str>)>) {
        let voice = &self.context.voice;
        match (problem, self.failing_since) {
            (None, None) => {}
            (None, Some(total)) => {
                self.failing_since = None;
                voice.info(format!("journal: works again; {total} records were lost in between"));
            }
            (Some(_), Some(total)) => self.failing_since = Some(total + lost),
            (Some((message, hint)), None) => {
                self.failing_since = Some(lost);
                let message = format!("journal: {message}; losses are counted, training goes on");
                voice.warn(message, hint.map(str::to_owned));
            }
        }
    }

    /// Notes that the run ended in order; what waits for the disk is flushed by the thread of its own.
    pub(crate) fn close(self) -> ClosingJournal {
        let Self { journal, flushes, context, .. } = self;
        if let Err(error) = journal.close() {
            context.voice.warn(format!("journal: {}", with_causes(&error)), Some(error.hint().to_owned()));
        }
        flushes.flusher.close(context.voice)
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

/// Waits for the disk so that the worker need not.
struct Flusher {
    asked: Sender<()>,
    done: Receiver<()>,
}

impl Flusher {
    fn start(view: JournalView, source: JournalSource, voice: Voice) -> Result<Self, std::io::Error> {
        let (asked, requests) = bounded(1);
        let (alive, done) = bounded(0);
        std::thread::Builder::new().name("trainmon-flush".to_owned()).spawn(move || {
            // Dropped when the thread ends, however it ends: that is what `finish` waits for.
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

    fn close(self, voice: Voice) -> ClosingJournal {
        drop(self.asked);
        ClosingJournal { done: self.done, voice }
    }
}

/// A journal whose last flush is under way.
pub(crate) struct ClosingJournal {
    done: Receiver<()>,
    voice: Voice,
}

impl ClosingJournal {
    /// Waits for the flush, until the deadline. What was written survives the process's end in any case.
    pub(crate) fn finish(self, deadline: Instant) {
        if self.done.recv_deadline(deadline) != Err(RecvTimeoutError::Disconnected) {
            let message = "journal: the disk did not take it all before the shutdown deadline; only loss of power can \
                           still cost steps";
            self.voice.warn(message, None);
        }
    }
}
