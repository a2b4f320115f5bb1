//! An exporter's books and queue, as everyone but its own thread sees them.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use trainmon_core::SinkLedger;

/// What outlives the sink's thread: its books, and the word that nobody waits any more.
#[derive(Debug)]
pub(crate) struct SinkShared {
    pub(crate) name: &'static str,
    pub(crate) ledger: Arc<SinkLedger>,
    pub(crate) capacity: usize,
    /// Batches in the queue.
    pub(crate) queued: Arc<AtomicUsize>,
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
        Self {
            name,
            ledger: Arc::default(),
            capacity: capacity.max(1),
            queued: Arc::default(),
            alerts_waiting: AtomicU64::new(0),
            given_up: Mutex::new(false),
            deadline: OnceLock::new(),
        }
    }

    /// Says when the waiting ends.
    pub(crate) fn close_by(&self, deadline: Instant) {
        self.deadline.get_or_init(|| deadline);
    }

    /// When the waiting ends; `None` before shutdown.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }

    /// Locks the word that nobody waits any more.
    pub(crate) fn given_up(&self) -> MutexGuard<'_, bool> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
