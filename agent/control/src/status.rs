//! The status: reads counters, without any lock of the training thread.

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
use super::progress::{Progress, ProgressLog};
use crate::live::Live;

/// The sources of a status.
#[derive(Clone)]
pub struct Sources {
    /// The identity of this process.
    pub run: RunInfo,
    /// The current step and plan.
    pub live: Arc<Live>,
    /// The record counts.
    pub ledger: Arc<Ledger>,
    /// The names of the measured tensors.
    pub tensors: TensorTable,
    /// The collective operations.
    pub collectives: Arc<CollectiveTotals>,
    /// The exporters.
    pub sinks: Vec<SinkStatus>,
    /// The number of batches waiting for the worker.
    pub waiting: Arc<AtomicUsize>,
    /// The capacity of the worker's queue, in batches.
    pub capacity: usize,
    /// The share of a step's time that measuring may take.
    pub overhead_budget: Option<f64>,
    /// When the monitor started.
    pub started: Instant,
}

/// The status of one exporter.
#[derive(Clone)]
pub struct SinkStatus {
    /// The exporter's name: `csv`, `prometheus`.
    pub name: &'static str,
    /// Its record counts.
    pub ledger: Arc<SinkLedger>,
    /// The number of batches waiting for it.
    pub queued: Arc<AtomicUsize>,
    /// The capacity of its queue, in batches.
    pub capacity: usize,
    /// The location of its output.
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
    /// The average step time; 0 before it is known.
    seconds_per_step: f64,
    /// Whether the step in progress is measured.
    collecting: bool,
    /// The collective operation that the run hangs in, with the waiting and the missing ranks; null if it does not
    /// hang.
    hang: Option<String>,
    collectives: Communication,
    plan: Plan,
    /// The number of tensors known by name.
    tensors: usize,
    /// The latest changes, oldest first.
    changes: Vec<Progress>,
    /// The latest captures, oldest first.
    captures: Vec<CaptureState>,
    cost: Cost,
    ledger: RecordCounters,
    queues: BTreeMap<&'static str, Queue>,
    sinks: BTreeMap<&'static str, SinkCounters>,
    locations: BTreeMap<&'static str, Vec<String>>,
}

#[derive(Serialize)]
struct Cost {
    /// The time in the monitor on the training thread, as a share of the step; null before it is known.
    share_of_step: Option<f64>,
    /// The allowed share; null without a budget.
    budget: Option<f64>,
    /// The share of layers measured per step to stay within the budget.
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
    /// Returns the current status.
    pub(super) fn status(&self, progress_log: &ProgressLog) -> Status {
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
            changes: progress_log.all(),
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
            locations: self.sinks.iter().map(|sink| (sink.name, sink.places.clone())).collect(),
        }
    }

    /// Whether every exporter has delivered or dropped everything offered to the worker before `mark`.
    pub(super) fn is_delivered(&self, mark: LedgerSnapshot) -> bool {
        self.sinks.iter().all(|sink| {
            let SinkSnapshot { accepted, exported, failed, abandoned, dropped } = sink.ledger.snapshot();
            accepted >= mark.accepted && exported + failed + abandoned + dropped >= mark.accepted
        })
    }
}

impl From<LedgerSnapshot> for RecordCounters {
    fn from(counts: LedgerSnapshot) -> Self {
        let LedgerSnapshot { observed, not_sampled, offered, accepted, dropped } = counts;
        let dropped = DropReason::ALL.into_iter().map(|reason| (reason.name(), dropped[reason as usize])).collect();
        Self { observed, not_sampled, offered, accepted, dropped }
    }
}

impl From<SinkSnapshot> for SinkCounters {
    fn from(counts: SinkSnapshot) -> Self {
        let SinkSnapshot { accepted, exported, failed, abandoned, dropped } = counts;
        Self { accepted, exported, failed, abandoned, dropped }
    }
}
