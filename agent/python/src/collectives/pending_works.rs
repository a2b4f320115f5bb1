//! The `Work` objects of operations in progress, until the caller waits for them or drops them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;

use super::open::Open;
use crate::discard_error::discard;

/// The number of works that are checked when another operation begins. Callers that keep more open usually wait for the
/// oldest first.
const LOOKED_AT: usize = 4;
/// A wait within this time after the call counts as part of the call.
pub(super) const AT_ONCE: Duration = Duration::from_micros(100);

/// The operations of a work; several if it ends a group.
pub(super) struct Pending {
    pub(super) open: Vec<Open>,
    /// Detects that the caller has dropped the work without waiting.
    work: Py<PyWeakrefReference>,
}

/// The pending works, by the address of their Python object.
#[derive(Default)]
pub(super) struct PendingWorks {
    works: Mutex<HashMap<usize, Pending, FixedState>>,
    /// The number of works, readable without a lock.
    count: AtomicUsize,
}

impl PendingWorks {
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, py: Python<'_>, key: usize, open: Vec<Open>, work: Py<PyWeakrefReference>) {
        let before = self.works.lock().insert(key, Pending { open, work });
        if let Some(gone) = before {
            // The caller dropped the earlier work at this address without waiting.
            release(gone);
            return;
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() && count >= 64 {
            self.forget_dead(py);
        }
    }

    /// Takes the last operation of a work; others are dropped.
    pub(super) fn take(&self, key: usize) -> Option<Open> {
        let mut pending = self.remove(key)?;
        let open = pending.open.pop();
        release(pending);
        open
    }

    pub(super) fn remove(&self, key: usize) -> Option<Pending> {
        let pending = self.works.lock().remove(&key)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(pending)
    }

    /// Returns whether a work is known. Records whether its operation has already ended before the coming wait.
    /// `may_ask`: false while a graph is recorded.
    pub(super) fn look_at(&self, py: Python<'_>, key: usize, now: Instant, may_ask: impl FnOnce() -> bool) -> bool {
        if self.len() == 0 {
            return false;
        }
        let work = {
            let works = self.works.lock();
            let Some(pending) = works.get(&key) else { return false };
            let is_long_ago = |open: &Open| open.completed.is_none() && now - open.returned > AT_ONCE;
            if !pending.open.iter().all(is_long_ago) {
                return true;
            }
            pending.work.bind(py).upgrade()
        };
        if let Some(work) = work
            && may_ask()
            && is_completed(&work)
        {
            self.note_completed(key, now);
        }
        true
    }

    /// Calls [`look_at`](Self::look_at) for some of the works in flight.
    pub(super) fn look_at_oldest(&self, py: Python<'_>) {
        let now = Instant::now();
        let works: Vec<_> = {
            let works = self.works.lock();
            let in_flight = works.iter().filter(|(_, one)| one.open.iter().any(|open| open.completed.is_none()));
            in_flight.take(LOOKED_AT).map(|(&key, one)| (key, one.work.bind(py).upgrade())).collect()
        };
        for (key, work) in works {
            match work {
                Some(work) if is_completed(&work) => self.note_completed(key, now),
                Some(_) => {}
                None => self.forget(key),
            }
        }
    }

    fn note_completed(&self, key: usize, now: Instant) {
        if let Some(pending) = self.works.lock().get_mut(&key) {
            for open in &mut pending.open {
                open.completed.get_or_insert(now);
            }
        }
    }

    fn forget(&self, key: usize) {
        if let Some(pending) = self.remove(key) {
            release(pending);
        }
    }

    /// Drops works for which no caller can wait any more.
    pub(super) fn forget_dead(&self, py: Python<'_>) {
        let dead: Vec<usize> = {
            let works = self.works.lock();
            works.iter().filter(|(_, one)| one.work.bind(py).upgrade().is_none()).map(|(&key, _)| key).collect()
        };
        for key in dead {
            self.forget(key);
        }
    }

    /// Handles a wait that raised: the operation has failed if its work reports that.
    pub(super) fn wait_failed(&self, py: Python<'_>, key: usize) {
        let work = self.works.lock().get(&key).and_then(|pending| pending.work.bind(py).upgrade());
        if work.is_none_or(|work| is_completed(&work)) {
            // Dropping counts the operation as failed.
            drop(self.remove(key));
        }
    }

    /// Drops all pending works.
    pub(super) fn release_all(&self) {
        let pending: Vec<_> = self.works.lock().drain().map(|(_, pending)| pending).collect();
        self.count.store(0, Ordering::Relaxed);
        pending.into_iter().for_each(release);
    }
}

/// Discards operations whose end is unknown.
fn release(pending: Pending) {
    for open in pending.open {
        match open.completed {
            Some(at) => {
                let mut open = open;
                open.end_time(at, Some(Duration::ZERO));
            }
            None => open.guard.release(),
        }
    }
}

/// Whether a work reports that its operation has ended. An exception counts as ended.
fn is_completed(work: &Bound<'_, PyAny>) -> bool {
    let py = work.py();
    match work.call_method0(intern!(py, "is_completed")).and_then(|told| told.is_truthy()) {
        Ok(is_completed) => is_completed,
        Err(error) => {
            discard(py, error);
            true
        }
    }
}
