//! What `status` says: one look at counters, no lock that the training thread takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde::Serialize;
use trainmon_core::config::Plan;
use trainmon_core::{
    CollectiveTotals, DropReason, Ledger, LedgerSnapshot, RunInfo, SinkLedger, SinkSnapshot, TensorTable,
};

use super::captures::CaptureState;
use super::communication::Communication;
use super::progress::{Progress, ProgressBook};
use crate::live::Live;

/// What a status is made of.
#[derive(Clone)]
pub struct Sources {
    /// Which process this is.
    pub run: RunInfo,
    /// The step in progress and the plan in force.
    pub live: Arc<Live>,
    /// What became of the records.
    pub ledger: Arc<Ledger>,
    /// The names of what is measured.
    pub tensors: TensorTable,
    /// The collective operations.
    pub collectives: Arc<CollectiveTotals>,
    /// The exporters.
    pub sinks: Vec<SinkStatus>,
    /// Batches waiting for the worker.
    pub waiting: Arc<AtomicUsize>,
    /// How many batches may wait for the worker.
    pub capacity: usize,
    /// The share of the step that measuring may take.
    pub overhead_budget: Option<f64>,
    /// When the monitor was started.
    pub started: Instant,
}

/// One exporter's part of the status.
#[derive(Clone)]
pub struct SinkStatus {
    /// `csv`, `prometheus`.
    pub name: &'static str,
    /// What became of the records it was given.
    pub ledger: Arc<SinkLedger>,
    /// Batches waiting for it.
    pub queued: Arc<AtomicUsize>,
    /// How many may.
    pub capacity: usize,
    /// Where its output is.
    pub places: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct Status {
    version: &'static str,
    pid: u32,
    run: String,
    rank: u32,
    world_size: u32,
    uptime_seconds: f64,
    /// The step in progress.
    step: u64,
    /// Its running duration; 0 before it is known.
    seconds_per_step: f64,
    /// Whether the step in progress is measured.
    collecting: bool,
    /// The collective operation that the run hangs in, with the ranks that wait and those that never came; null while it goes on.
    hang: Option<String>,
    collectives: Communication,
    plan: Plan,
    /// Tensors that are known by name.
    tensors: usize,
    /// The latest changes, oldest first.
    changes: Vec<Progress>,
    /// The latest captures, oldest first.
    captures: Vec<CaptureState>,
    cost: Cost,
    ledger: RecordCounters,
    queues: BTreeMap<&'static str, Queue>,
    sinks: BTreeMap<&'static str, SinkCounters>,
    whereabouts: BTreeMap<&'static str, Vec<String>>,
}

#[derive(Serialize)]
struct Cost {
    /// The training thread's time spent in the monitor, as a share of the step; null before it is known.
    share_of_step: Option<f64>,
    /// The share it may take; null without a budget.
    budget: Option<f64>,
    /// The share of layers measured per step to keep it.
    sampling_ratio: f64,
    bytes_read: u64,
}

#[derive(Serialize)]
pub(super) struct RecordCounters {
    observed: u64,
    not_sampled: u64,
    offered: u64,
    accepted: u64,
    dropped: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct Queue {
    waiting: usize,
    capacity: usize,
}

#[derive(Serialize)]
pub(super) struct SinkCounters {
    accepted: u64,
    exported: u64,
    failed: u64,
    abandoned: u64,
    dropped: u64,
}

impl Sources {
    /// How things are now.
    pub(super) fn status(&self, book: &ProgressBook) -> Status {
        let RunInfo { run, rank, world_size, .. } = &self.run;
        let live = &self.live;
        let (spent, passed, bytes_read) = live.cost();
        let queues = self
            .sinks
            .iter()
            .map(|sink| (sink.name, Queue { waiting: sink.queued.load(Ordering::Relaxed), capacity: sink.capacity }));
        let own = Queue { waiting: self.waiting.load(Ordering::Relaxed), capacity: self.capacity };
        Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            run: run.clone(),
            rank: rank.0,
            world_size: *world_size,
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            step: live.step().0,
            seconds_per_step: live.pace().as_secs_f64(),
            collecting: live.is_collecting(),
            hang: live.hang(),
            collectives: Communication::of(&self.collectives),
            plan: Plan::clone(&live.plan()),
            tensors: self.tensors.len(),
            changes: book.all(),
            captures: live.captures().states(),
            cost: Cost {
                share_of_step: (!passed.is_zero()).then(|| spent.as_secs_f64() / passed.as_secs_f64()),
                budget: self.overhead_budget,
                sampling_ratio: 1.0 / f64::from(live.sampling_stride()),
                bytes_read,
            },
            ledger: self.ledger.snapshot().into(),
            queues: queues.chain([("worker", own)]).collect(),
            sinks: self.sinks.iter().map(|sink| (sink.name, sink.ledger.snapshot().into())).collect(),
            whereabouts: self.sinks.iter().map(|sink| (sink.name, sink.places.clone())).collect(),
        }
    }

    /// Whether everything that the worker had been offered at `mark` has met its fate at every exporter.
    pub(super) fn is_delivered(&self, mark: LedgerSnapshot) -> bool {
        self.sinks.iter().all(|sink| {
            let SinkSnapshot { accepted, exported, failed, abandoned, dropped } = sink.ledger.snapshot();
            accepted >= mark.accepted && exported + failed + abandoned + dropped >= mark.accepted
        })
    }
}

impl From<LedgerSnapshot> for RecordCounters {
    fn from(books: LedgerSnapshot) -> Self {
        let LedgerSnapshot { observed, not_sampled, offered, accepted, dropped } = books;
        let dropped = DropReason::ALL.into_iter().map(|reason| (reason.name(), dropped[reason as usize])).collect();
        Self { observed, not_sampled, offered, accepted, dropped }
    }
}

impl From<SinkSnapshot> for SinkCounters {
    fn from(books: SinkSnapshot) -> Self {
        let SinkSnapshot { accepted, exported, failed, abandoned, dropped } = books;
        Self { accepted, exported, failed, abandoned, dropped }
    }
}
