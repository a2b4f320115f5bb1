//! Every record that is lost on its way is counted, with a reason; the books balance.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters publish no other memory, so atomicity alone is enough.
const COUNT: Ordering = Ordering::Relaxed;

crate::named_enum! {
    /// Why a batch's records never reached the exporters.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum DropReason: name {
        /// The queue to the worker (or to one exporter) was full: training does not wait.
        QueueFull = "queue_full",
        /// The worker is gone: the monitor is shut down, or this process is a fork's child.
        WorkerGone = "worker_gone",
    }
}

/// The books of one monitor, in records.
///
/// At any moment after shutdown: `observed == not_sampled + offered`, `offered == accepted + dropped[queue_full] +
/// dropped[worker_gone]`, and per exporter `accepted == exported + failed + abandoned + dropped`.
#[derive(Debug, Default)]
pub struct Ledger {
    observed: AtomicU64,
    not_sampled: AtomicU64,
    offered: AtomicU64,
    accepted: AtomicU64,
    dropped: [AtomicU64; 2],
}

/// A [`Ledger`] read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSnapshot {
    /// Tensors a hook was shown.
    pub observed: u64,
    /// Of these, tensors not measured: outside the step window, of an unsupported form, or the hook failed.
    pub not_sampled: u64,
    /// Records handed to the queue.
    pub offered: u64,
    /// Records the worker received.
    pub accepted: u64,
    /// Records lost, by [`DropReason`].
    pub dropped: [u64; 2],
}

impl Ledger {
    /// A hook was shown this many tensors.
    pub fn observe(&self, records: u64) {
        self.observed.fetch_add(records, COUNT);
    }

    /// This many of them were not measured.
    pub fn skip(&self, records: u64) {
        self.not_sampled.fetch_add(records, COUNT);
    }

    /// A batch of this many records was handed over, with this outcome.
    pub fn offer(&self, records: u64, outcome: Result<(), DropReason>) {
        self.offered.fetch_add(records, COUNT);
        match outcome {
            Ok(()) => self.accepted.fetch_add(records, COUNT),
            Err(reason) => self.dropped[reason as usize].fetch_add(records, COUNT),
        };
    }

    /// The books now.
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
    /// Whether every observed record is accounted for. True after shutdown; in mid-step records may be in flight.
    pub fn balances(&self) -> bool {
        let Self { observed, not_sampled, offered, accepted, dropped } = *self;
        observed == not_sampled + offered && offered == accepted + dropped.iter().sum::<u64>()
    }
}

/// The books of one exporter, in records.
#[derive(Debug, Default)]
pub struct SinkLedger {
    accepted: AtomicU64,
    exported: AtomicU64,
    failed: AtomicU64,
    abandoned: AtomicU64,
    dropped: AtomicU64,
}

/// A [`SinkLedger`] read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkSnapshot {
    /// Records meant for this exporter: what the worker received.
    pub accepted: u64,
    /// Records delivered.
    pub exported: u64,
    /// Records the exporter could not deliver (disk full, say).
    pub failed: u64,
    /// Records still queued when the shutdown's deadline passed.
    pub abandoned: u64,
    /// Records dropped because this exporter's queue was full.
    pub dropped: u64,
}

impl SinkLedger {
    /// The worker received this many records for this exporter.
    pub fn accept(&self, records: u64) {
        self.accepted.fetch_add(records, COUNT);
    }

    /// This many were delivered.
    pub fn exported(&self, records: u64) {
        self.exported.fetch_add(records, COUNT);
    }

    /// This many could not be delivered.
    pub fn failed(&self, records: u64) {
        self.failed.fetch_add(records, COUNT);
    }

    /// This many were left over at shutdown.
    pub fn abandoned(&self, records: u64) {
        self.abandoned.fetch_add(records, COUNT);
    }

    /// This many found the exporter's queue full.
    pub fn dropped(&self, records: u64) {
        self.dropped.fetch_add(records, COUNT);
    }

    /// The books now.
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

    /// Records that never arrived.
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
