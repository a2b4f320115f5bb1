//! An exporter's counters and queue state, as visible to other threads.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use trainmon_core::config::Config;
use trainmon_core::{AlertTotals, SinkLedger};
use trainmon_exporters::Exporter;

use crate::queue_loss::QueueCounts;

/// An exporter and its counters.
pub(crate) struct Output {
    pub(crate) exporter: Box<dyn Exporter>,
    pub(crate) shared: Arc<SinkShared>,
}

impl Output {
    pub(crate) fn new(exporter: Box<dyn Exporter>, config: &Config) -> Self {
        let shared = Arc::new(SinkShared::new(exporter.name(), config.pipeline.queue_steps));
        Self { exporter, shared }
    }

    /// Its counters and the locations of its output.
    pub(crate) fn locations(&self) -> (Arc<SinkShared>, Vec<String>) {
        (Arc::clone(&self.shared), self.exporter.locations())
    }
}

/// The part of a sink that outlives its thread: its counters, and the flag that waiting has ended.
#[derive(Debug, Default)]
pub(crate) struct SinkShared {
    pub(crate) name: &'static str,
    pub(crate) ledger: Arc<SinkLedger>,
    pub(crate) capacity: usize,
    /// Batches in the queue.
    pub(crate) queued: Arc<AtomicUsize>,
    /// Steps offered to the queue, and steps that it dropped.
    pub(crate) steps: QueueCounts,
    /// Steps that were offered to the queue and whose outcome is known.
    steps_done: AtomicU64,
    /// Whether the exporter failed to write the last step from its queue.
    pub(crate) is_failing: AtomicBool,
    /// Records that the exporter has although the worker's full queue dropped them.
    kept_alone: AtomicU64,
    /// Deliveries that are queued or in progress.
    pub(crate) pending: PendingDeliveries,
    /// Alerts that are queued or in progress.
    pub(crate) alerts_waiting: AtomicU64,
    /// Set when the shutdown deadline has passed: undelivered records are then abandoned. Locked while the outcome of a batch
    /// is counted, so that no batch gets two.
    given_up: Mutex<bool>,
    /// The shutdown deadline, once shutdown has begun.
    deadline: OnceLock<Instant>,
}

impl SinkShared {
    /// Empty counters for an exporter whose queue holds `capacity` batches.
    pub(crate) fn new(name: &'static str, capacity: usize) -> Self {
        Self { name, capacity: capacity.max(1), ..Self::default() }
    }

    /// Sets the shutdown deadline.
    pub(crate) fn close_by(&self, deadline: Instant) {
        self.deadline.get_or_init(|| deadline);
    }

    /// The shutdown deadline; `None` before shutdown.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }

    /// Counts a step whose outcome is known.
    pub(crate) fn add_step_done(&self) {
        // A reader of this count also sees the step's effects.
        self.steps_done.fetch_add(1, Ordering::Release);
    }

    /// The number of steps offered to the queue whose outcome is known.
    pub(crate) fn steps_done(&self) -> u64 {
        self.steps_done.load(Ordering::Acquire)
    }

    /// Counts records that the exporter has although the worker never accepted them.
    pub(crate) fn add_kept_alone(&self, records: u64) {
        self.kept_alone.fetch_add(records, Ordering::Relaxed);
    }

    /// Locks the flag that waiting has ended.
    pub(crate) fn given_up(&self) -> MutexGuard<'_, bool> {
        self.given_up.lock()
    }

    /// Stops waiting: abandons and counts everything without an outcome, and ignores later outcomes. Returns the number of
    /// abandoned records.
    pub(crate) fn give_up(&self, alerts: &AlertTotals) -> u64 {
        let mut given_up = self.given_up();
        if std::mem::replace(&mut *given_up, true) {
            return 0;
        }
        let counts = self.ledger.snapshot();
        let left = counts.accepted.saturating_sub(counts.exported + counts.failed + counts.dropped);
        self.ledger.abandoned(left);
        alerts.lose(self.alerts_waiting.swap(0, Ordering::Relaxed));
        left
    }

    /// Counts records for this exporter that never reached its queue as abandoned, after [`give_up`](Self::give_up).
    pub(crate) fn abandon_unseen(&self, worker_accepted: u64) -> u64 {
        let by_worker = self.ledger.snapshot().accepted.saturating_sub(self.kept_alone.load(Ordering::Relaxed));
        let unseen = worker_accepted.saturating_sub(by_worker);
        self.ledger.accept(unseen);
        self.ledger.abandoned(unseen);
        unseen
    }
}

/// The number of deliveries that an exporter has not finished.
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

    /// Waits until all deliveries are finished, at most `patience`.
    pub(crate) fn wait_until_empty(&self, patience: Duration) {
        self.emptied.wait_while_for(&mut self.count.lock(), |count| *count > 0, patience);
    }
}
