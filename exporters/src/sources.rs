//! What exporters read from the rest of the process beside the batches.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use trainmon_core::{AlertTotals, CollectiveTotals, Kind, Ledger, PartTable, SinkLedger, Statistic, StatisticSet};

/// The live books: read at every scrape, so a counter is true even while this exporter's own queue is full.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The books of the monitor.
    pub ledger: Arc<Ledger>,
    /// The queue from the training thread to the worker.
    pub worker_queue: QueueGauge,
    /// Every exporter, this one included.
    pub sinks: Vec<SinkSource>,
    /// The journal's own counts, where one is kept; its books are among `sinks`.
    pub journal: Option<JournalSource>,
    /// Which statistics the readings really hold.
    pub statistics: MeasuredStatistics,
    /// The share of a step's time that measuring may take; `None` where there is no limit.
    pub overhead_budget: Option<f64>,
    /// What the alerts amount to.
    pub alerts: Arc<AlertTotals>,
    /// What collective operations amount to.
    pub collectives: Arc<CollectiveTotals>,
    /// Which part of each parameter this rank holds, where ranks hold different ones.
    pub parts: Arc<PartTable>,
    /// Whether steps tell what measuring them cost and what became of their records. A recorded run may have kept none of it, as
    /// msprobe's files: zeros in its place would be made up.
    pub has_account: bool,
}

/// What the journal counts beside its books.
#[derive(Clone, Debug, Default)]
pub struct JournalSource {
    /// Bytes written.
    pub bytes: Arc<AtomicU64>,
    /// Writes and flushes that failed.
    pub errors: Arc<AtomicU64>,
}

/// One exporter's books and queue.
#[derive(Clone, Debug)]
pub struct SinkSource {
    /// The `sink` label: [`Exporter::name`](crate::Exporter::name).
    pub name: &'static str,
    /// Its books.
    pub ledger: Arc<SinkLedger>,
    /// Its queue.
    pub queue: QueueGauge,
}

/// How full a queue is.
#[derive(Clone)]
pub struct QueueGauge {
    /// Step batches waiting now. Called at every scrape and for every step over OTLP, on the exporter's own
    /// thread: it must not block. It lives as long
    /// as the exporter: a closure that holds a channel's only other end keeps that channel open.
    pub length: Arc<dyn Fn() -> usize + Send + Sync>,
    /// Step batches that may wait.
    pub capacity: usize,
}

impl QueueGauge {
    /// No queue: of steps that were recorded long ago.
    pub fn none() -> Self {
        Self { length: Arc::new(|| 0), capacity: 0 }
    }
}

impl Sources {
    /// What there is beside the batches of a recorded run: their statistics, and counters of alerts.
    pub fn of_recorded(statistics: MeasuredStatistics, alerts: Arc<AlertTotals>, has_account: bool) -> Self {
        Self {
            ledger: Arc::default(),
            worker_queue: QueueGauge::none(),
            sinks: Vec::new(),
            journal: None,
            statistics,
            overhead_budget: None,
            alerts,
            collectives: Arc::default(),
            parts: Arc::default(),
            has_account,
        }
    }
}

impl fmt::Debug for QueueGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueGauge").field("length", &(self.length)()).field("capacity", &self.capacity).finish()
    }
}

/// Which statistics the readings of each kind hold. What was not measured has a neutral value in a
/// [`Reading`](trainmon_core::Reading), which a page must not serve as if it were one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredStatistics([StatisticSet; Kind::ALL.len()]);

impl MeasuredStatistics {
    /// Every statistic of every kind.
    pub fn everything() -> Self {
        Self([Statistic::ALL.into_iter().collect(); Kind::ALL.len()])
    }

    /// What `statistics` says of each kind.
    pub fn of_kinds(statistics: impl FnMut(Kind) -> StatisticSet) -> Self {
        Self(Kind::ALL.map(statistics))
    }

    /// Says that readings of `kind` hold exactly `statistics`.
    pub fn set(&mut self, kind: Kind, statistics: StatisticSet) {
        self.0[kind as usize] = statistics;
    }

    /// What readings of `kind` hold.
    pub fn of(&self, kind: Kind) -> StatisticSet {
        self.0[kind as usize]
    }
}
