//! Counts of records from observation to delivery. Every lost record is counted with a reason, and the counts add up.

use std::sync::atomic::{AtomicU64, Ordering};

/// Relaxed, because counters publish no other memory.
const COUNT: Ordering = Ordering::Relaxed;

crate::named_enum! {
    /// Why the records of a batch never reached the exporters.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum DropReason: name {
        /// The queue to the worker or to an exporter was full. Training does not wait.
        QueueFull = "queue_full",
        /// The worker has ended: the monitor was shut down, or this process is a forked child.
        WorkerGone = "worker_gone",
    }
}

/// The record counts of one monitor.
///
/// After shutdown: `observed == not_sampled + offered`, `offered == accepted + dropped[queue_full] +
/// dropped[worker_gone]`, and per exporter `accepted == exported + failed + abandoned + dropped`.
#[derive(Debug, Default)]
pub struct Ledger {
    observed: AtomicU64,
    not_sampled: AtomicU64,
    offered: AtomicU64,
    accepted: AtomicU64,
    dropped: [AtomicU64; 2],
}

/// A snapshot of a [`Ledger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSnapshot {
    /// Tensors that hooks observed.
    pub observed: u64,
    /// Observed tensors that were not measured: outside the step window, of an unsupported form, or because the hook
    /// failed.
    pub not_sampled: u64,
    /// Records offered to the queue.
    pub offered: u64,
    /// Records that the worker received.
    pub accepted: u64,
    /// Dropped records, by [`DropReason`].
    pub dropped: [u64; 2],
}

impl Ledger {
    /// Counts tensors that a hook observed.
    pub fn observe(&self, records: u64) {
        self.observed.fetch_add(records, COUNT);
    }

    /// Counts observed tensors that were not measured.
    pub fn skip(&self, records: u64) {
        self.not_sampled.fetch_add(records, COUNT);
    }

    /// Counts a batch offered to the queue, with its outcome.
    pub fn offer(&self, records: u64, outcome: Result<(), DropReason>) {
        self.offered.fetch_add(records, COUNT);
        match outcome {
            Ok(()) => self.accepted.fetch_add(records, COUNT),
            Err(reason) => self.dropped[reason as usize].fetch_add(records, COUNT),
        };
    }

    /// Returns the current counts.
    pub fn snapshot(&self) -> LedgerSnapshot {
        let Self { observed, not_sampled, offered, accepted, dropped } = self;
        LedgerSnapshot {
            observed: observed.load(COUNT),
            not_sampled: not_sampled.load(COUNT),
            offered: offered.load(COUNT),
            accepted: accepted.load(COUNT),
            dropped: [dropped[0].load(COUNT), dropped[1].load(COUNT)],
        }
    }
}

impl LedgerSnapshot {
    /// Whether every observed record is accounted for. True after shutdown; during a step, records may be in flight.
    pub fn balances(&self) -> bool {
        let Self { observed, not_sampled, offered, accepted, dropped } = *self;
        observed == not_sampled + offered && offered == accepted + dropped.iter().sum::<u64>()
    }
}

/// The record counts of one exporter.
#[derive(Debug, Default)]
pub struct SinkLedger {
    accepted: AtomicU64,
    exported: AtomicU64,
    failed: AtomicU64,
    abandoned: AtomicU64,
    dropped: AtomicU64,
}

/// A snapshot of a [`SinkLedger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkSnapshot {
    /// Records that the worker received for this exporter.
    pub accepted: u64,
    /// Records delivered.
    pub exported: u64,
    /// Records that the exporter could not deliver, for example because the disk was full.
    pub failed: u64,
    /// Records still in the queue at the shutdown deadline.
    pub abandoned: u64,
    /// Records dropped because this exporter's queue was full.
    pub dropped: u64,
}

impl SinkLedger {
    /// Counts records that the worker received for this exporter.
    pub fn accept(&self, records: u64) {
        self.accepted.fetch_add(records, COUNT);
    }

    /// Counts delivered records.
    pub fn exported(&self, records: u64) {
        self.exported.fetch_add(records, COUNT);
    }

    /// Counts records that could not be delivered.
    pub fn failed(&self, records: u64) {
        self.failed.fetch_add(records, COUNT);
    }

    /// Counts records left at shutdown.
    pub fn abandoned(&self, records: u64) {
        self.abandoned.fetch_add(records, COUNT);
    }

    /// Counts records dropped at a full queue.
    pub fn dropped(&self, records: u64) {
        self.dropped.fetch_add(records, COUNT);
    }

    /// Returns the current counts.
    pub fn snapshot(&self) -> SinkSnapshot {
        let Self { accepted, exported, failed, abandoned, dropped } = self;
        SinkSnapshot {
            accepted: accepted.load(COUNT),
            exported: exported.load(COUNT),
            failed: failed.load(COUNT),
            abandoned: abandoned.load(COUNT),
            dropped: dropped.load(COUNT),
        }
    }
}

impl SinkSnapshot {
    /// Whether every accepted record is accounted for.
    pub fn balances(&self) -> bool {
        let Self { accepted, exported, failed, abandoned, dropped } = *self;
        accepted == exported + failed + abandoned + dropped
    }

    /// Records that were not delivered.
    pub fn lost(&self) -> u64 {
        self.failed + self.abandoned + self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_books_balance_only_when_every_record_has_a_fate() {
        let ledger = Ledger::default();
        ledger.observe(10);
        ledger.skip(3);
        assert!(!ledger.snapshot().balances());
        ledger.offer(4, Ok(()));
        ledger.offer(3, Err(DropReason::QueueFull));
        assert!(ledger.snapshot().balances());
        assert_eq!(ledger.snapshot().dropped, [3, 0]);
    }

    #[test]
    fn a_sink_names_what_it_lost() {
        let sink = SinkLedger::default();
        sink.accept(6);
        sink.exported(1);
        sink.failed(2);
        sink.abandoned(1);
        assert!(!sink.snapshot().balances());
        sink.dropped(2);
        assert!(sink.snapshot().balances());
        assert_eq!(sink.snapshot().lost(), 5);
    }
}
