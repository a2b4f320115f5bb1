//! Flushes the journal to the disk, on a thread that the training does not wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use trainmon_exporters::JournalSource;
use trainmon_journal::JournalView;

use trainmon_core::with_causes;
use trainmon_service::Notices;

/// The minimum time between flushes, so that short steps do not keep the disk busy.
const LEAST_BETWEEN_FLUSHES: Duration = Duration::from_secs(1);

/// Decides when to flush.
pub(super) struct FlushCadence {
    /// The number of steps between flushes; 0 disables flushes between the first and the last.
    every: u64,
    /// Steps since the last flush.
    steps: u64,
    last: Instant,
    flusher: Flusher,
}

impl FlushCadence {
    pub(super) fn new(every: u64, flusher: Flusher) -> Self {
        Self { every, steps: 0, last: Instant::now(), flusher }
    }

    /// Counts an appended step, and requests a flush when one is due.
    pub(super) fn step(&mut self) {
        self.steps += 1;
        if self.every > 0 && self.steps >= self.every && self.last.elapsed() >= LEAST_BETWEEN_FLUSHES {
            (self.steps, self.last) = (0, Instant::now());
            self.flusher.ask();
        }
    }

    /// Waits for the last flush.
    pub(super) fn close(self) {
        self.flusher.close();
    }
}

/// Measures the flush in progress.
#[derive(Debug)]
pub(super) struct FlushClock {
    origin: Instant,
    /// Its start in nanoseconds since the origin; 0 if there is none. Publishes no other memory.
    began: AtomicU64,
}

impl FlushClock {
    fn new() -> Self {
        Self { origin: Instant::now(), began: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    fn time<R>(&self, flush: impl FnOnce() -> R) -> R {
        self.began.store(self.now(), Ordering::Relaxed);
        let outcome = flush();
        self.began.store(0, Ordering::Relaxed);
        outcome
    }

    /// The duration of the flush in progress so far; zero if there is none.
    pub(super) fn under_way(&self) -> Duration {
        match self.began.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => Duration::from_nanos(self.now().saturating_sub(began)),
        }
    }
}

/// The thread that flushes, so that no step waits for the disk.
pub(super) struct Flusher {
    asked: Sender<()>,
    done: Receiver<()>,
}

impl Flusher {
    /// Starts the thread and returns the clock of its flushes. The thread keeps its priority: it uses no processor time, and
    /// a flush that has ended must not look like one that hangs.
    pub(super) fn start(
        view: JournalView,
        source: JournalSource,
        notices: Notices,
    ) -> Result<(Self, Arc<FlushClock>), std::io::Error> {
        let (asked, requests) = bounded(1);
        let (alive, done) = bounded(0);
        let clock = Arc::new(FlushClock::new());
        let timed = Arc::clone(&clock);
        std::thread::Builder::new().name("trainmon-flush".to_owned()).spawn(move || {
            // Dropped when the thread ends, even by a panic. `close` waits for that.
            let _alive: Sender<()> = alive;
            let mut is_failing = false;
            let mut flush = || match timed.time(|| view.flush()) {
                Ok(()) => is_failing = false,
                Err(error) => {
                    source.errors.fetch_add(1, Ordering::Relaxed);
                    if !std::mem::replace(&mut is_failing, true) {
                        notices.warn(format!("journal: {}", with_causes(&error)), Some(error.hint().to_owned()));
                    }
                }
            };
            requests.iter().for_each(|()| flush());
            flush();
        })?;
        Ok((Self { asked, done }, clock))
    }

    /// Requests a flush. Does nothing if another request is already queued.
    pub(super) fn ask(&self) {
        let _one_is_waiting = self.asked.try_send(());
    }

    fn close(self) {
        drop(self.asked);
        // The thread never sends. It drops its end when it has finished.
        let _disconnected = self.done.recv();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_under_way_until_it_returns() {
        let clock = FlushClock::new();
        assert_eq!(clock.under_way(), Duration::ZERO);
        let seen = clock.time(|| {
            let first = clock.under_way();
            while clock.under_way() <= first {
                std::thread::yield_now();
            }
            clock.under_way()
        });
        assert!(seen > Duration::ZERO);
        assert_eq!(clock.under_way(), Duration::ZERO);
    }
}
