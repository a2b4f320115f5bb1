//! An exporter's books and queue, as everyone but its own thread sees them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use trainmon_core::config::Config;
use trainmon_core::{AlertTotals, SinkLedger};
use trainmon_exporters::Exporter;

use crate::queue_loss::QueueCounts;

/// An exporter and the books it will be run with.
pub(crate) struct Output {
    pub(crate) exporter: Box<dyn Exporter>,
    pub(crate) shared: Arc<SinkShared>,
}

impl Output {
    pub(crate) fn new(exporter: Box<dyn Exporter>, config: &Config) -> Self {
        let shared = Arc::new(SinkShared::new(exporter.name(), config.pipeline.queue_steps));
        Self { exporter, shared }
    }

    /// Its books, and where what it writes is.
    pub(crate) fn whereabouts(&self) -> (Arc<SinkShared>, Vec<String>) {
        (Arc::clone(&self.shared), self.exporter.whereabouts())
    }
}

/// What outlives the sink's thread: its books, and the word that nobody waits any more.
#[derive(Debug, Default)]
pub(crate) struct SinkShared {
    pub(crate) name: &'static str,
    pub(crate) ledger: Arc<SinkLedger>,
    pub(crate) capacity: usize,
    /// Batches in the queue.
    pub(crate) queued: Arc<AtomicUsize>,
    /// Steps offered to the queue, and those it had no room for.
    pub(crate) steps: QueueCounts,
    /// Steps that came by the queue, or were to, and have their fate.
    steps_done: AtomicU64,
    /// Whether the exporter failed the last step that came by the queue.
    pub(crate) is_failing: AtomicBool,
    /// Records that the exporter has and the worker never took: the queue to it was full.
    kept_alone: AtomicU64,
    /// What was queued and is not dealt with yet.
    pub(crate) pending: PendingDeliveries,
    /// Alerts in the queue and in the exporter's hands.
    pub(crate) alerts_waiting: AtomicU64,
    /// Set when shutdown's deadline has passed: what is not delivered by then is abandoned. Held while a batch's fate
    /// is written into the ledger, so that no batch gets two.
    given_up: Mutex<bool>,
    /// When the waiting ends, once shutdown has begun.
    deadline: OnceLock<Instant>,
}

impl SinkShared {
    /// Empty books for an exporter whose queue holds `capacity` batches.
    pub(crate) fn new(name: &'static str, capacity: usize) -> Self {
        Self { name, capacity: capacity.max(1), ..Self::default() }
    }

    /// Says when the waiting ends.
    pub(crate) fn close_by(&self, deadline: Instant) {
        self.deadline.get_or_init(|| deadline);
    }

    /// When the waiting ends; `None` before shutdown.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }

    /// A step that came by the queue, or was to, has its fate.
    pub(crate) fn add_step_done(&self) {
        // Whoever sees it sees what was done with the step.
        self.steps_done.fetch_add(1, Ordering::Release);
    }

    /// How many steps that came by the queue, or were to, have their fate.
    pub(crate) fn steps_done(&self) -> u64 {
        self.steps_done.load(Ordering::Acquire)
    }

    /// The exporter has these records, and the worker never took them.
    pub(crate) fn add_kept_alone(&self, records: u64) {
        self.kept_alone.fetch_add(records, Ordering::Relaxed);
    }

    /// Locks the word that nobody waits any more.
    pub(crate) fn given_up(&self) -> MutexGuard<'_, bool> {
        self.given_up.lock()
    }

    /// Stops waiting: what has no fate yet is abandoned, and counted; what comes later is not written into the books any
    /// more. Gives the records abandoned.
    pub(crate) fn give_up(&self, alerts: &AlertTotals) -> u64 {
        let mut given_up = self.given_up();
        if std::mem::replace(&mut *given_up, true) {
            return 0;
        }
        let books = self.ledger.snapshot();
        let left = books.accepted.saturating_sub(books.exported + books.failed + books.dropped);
        self.ledger.abandoned(left);
        alerts.lose(self.alerts_waiting.swap(0, Ordering::Relaxed));
        left
    }

    /// Counts records that were meant for this exporter and never reached its queue as abandoned, after
    /// [`give_up`](Self::give_up).
    pub(crate) fn abandon_unseen(&self, worker_accepted: u64) -> u64 {
        let by_worker = self.ledger.snapshot().accepted.saturating_sub(self.kept_alone.load(Ordering::Relaxed));
        let unseen = worker_accepted.saturating_sub(by_worker);
        self.ledger.accept(unseen);
        self.ledger.abandoned(unseen);
        unseen
    }
}

/// How many deliveries an exporter was given and has not dealt with.
#[derive(Debug, Default)]
pub(crate) struct PendingDeliveries {
    count: Mutex<usize>,
    emptied: Condvar,
}

impl PendingDeliveries {
    pub(crate) fn is_empty(&self) -> bool {
        *self.count.lock() == 0
    }

    pub(crate) fn add(&self) {
        *self.count.lock() += 1;
    }

    pub(crate) fn remove(&self) {
        let mut count = self.count.lock();
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.emptied.notify_all();
        }
    }

    /// Waits until everything is dealt with, at most so long.
    pub(crate) fn wait_until_empty(&self, patience: Duration) {
        self.emptied.wait_while_for(&mut self.count.lock(), |count| *count > 0, patience);
    }
}
