//! The data that exporters read besides the batches.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use trainmon_core::{AlertTotals, CollectiveTotals, Kind, Ledger, PartTable, SinkLedger, Statistic, StatisticSet};

/// The live counters. They are read at every scrape, so that a counter is right even if this exporter's own queue is
/// full.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The monitor's record counts.
    pub ledger: Arc<Ledger>,
    /// The queue from the training thread to the worker.
    pub worker_queue: QueueGauge,
    /// Every exporter, including this one.
    pub sinks: Vec<SinkSource>,
    /// The journal's own counts, if there is a journal; its record counts are among `sinks`.
    pub journal: Option<JournalSource>,
    /// The statistics that the readings contain.
    pub statistics: MeasuredStatistics,
    /// The share of a step's time that measuring may take; `None` without a limit.
    pub overhead_budget: Option<f64>,
    /// The alert counters.
    pub alerts: Arc<AlertTotals>,
    /// The counts of collective operations.
    pub collectives: Arc<CollectiveTotals>,
    /// The part of each parameter that this rank holds, if ranks hold different parts.
    pub parts: Arc<PartTable>,
    /// Whether steps contain their measuring cost and their record counts. A recorded run may lack them, as msprobe's
    /// files do, and zeros would be wrong.
    pub has_account: bool,
}

/// The journal's counts besides its record counts.
#[derive(Clone, Debug, Default)]
pub struct JournalSource {
    /// The number of bytes written.
    pub bytes: Arc<AtomicU64>,
    /// The number of failed writes and flushes.
    pub errors: Arc<AtomicU64>,
}

/// One exporter's record counts and queue.
#[derive(Clone, Debug)]
pub struct SinkSource {
    /// The `sink` label: [`Exporter::name`](crate::Exporter::name).
    pub name: &'static str,
    /// Its record counts.
    pub ledger: Arc<SinkLedger>,
    /// Its queue.
    pub queue: QueueGauge,
}

/// The fill level of a queue.
#[derive(Clone)]
pub struct QueueGauge {
    /// The number of step batches waiting. Called at every scrape and for every step over OTLP, on the exporter's own
    /// thread, so it must not block. It lives as long as the exporter: a closure that holds the only other end of a
    /// channel keeps that channel open.
    pub length: Arc<dyn Fn() -> usize + Send + Sync>,
    /// The capacity in step batches.
    pub capacity: usize,
}

impl QueueGauge {
    /// No queue, for recorded steps.
    pub fn none() -> Self {
        Self { length: Arc::new(|| 0), capacity: 0 }
    }
}

impl Sources {
    /// The sources for a recorded run: its statistics, and alert counters.
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

/// The statistics that the readings of each kind contain. A statistic that was not measured has a neutral value in a
/// [`Reading`](trainmon_core::Reading), which must not be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredStatistics([StatisticSet; Kind::ALL.len()]);

impl MeasuredStatistics {
    /// Every statistic of every kind.
    pub fn everything() -> Self {
        Self([Statistic::ALL.into_iter().collect(); Kind::ALL.len()])
    }

    /// Calls `statistics` for each kind.
    pub fn of_kinds(statistics: impl FnMut(Kind) -> StatisticSet) -> Self {
        Self(Kind::ALL.map(statistics))
    }

    /// Declares that readings of `kind` contain exactly `statistics`.
    pub fn set(&mut self, kind: Kind, statistics: StatisticSet) {
        self.0[kind as usize] = statistics;
    }

    /// The statistics that readings of `kind` contain.
    pub fn of(&self, kind: Kind) -> StatisticSet {
        self.0[kind as usize]
    }
}
