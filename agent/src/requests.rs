//! What is measured of each kind, changeable while the training runs.

use std::sync::atomic::{AtomicU32, Ordering};

use trainmon_core::config::Config;
use trainmon_core::{Kind, Statistic, StatisticSet};
use trainmon_exporters::SCRAPE_STATISTICS;
use trainmon_stats::Request;

/// The set in the low half says all there is to measure; without this bit it comes on top of the config's.
const REPLACES: u32 = 1 << 16;

/// What the config asks for of one kind.
#[derive(Clone, Copy, Debug)]
struct OfKind {
    /// The columns.
    ops: StatisticSet,
    /// What the monitor's own series need, whatever the columns are.
    own: StatisticSet,
    eps: f64,
}

/// The requests, by kind. Read on every tensor: one load and no lock.
#[derive(Debug)]
pub(crate) struct Requests {
    configured: [Option<OfKind>; Kind::ALL.len()],
    /// A set of statistics for every kind of tensor, and [`REPLACES`]. It publishes no other memory.
    live: AtomicU32,
}

impl Requests {
    pub(crate) fn of(config: &Config) -> Self {
        Self { configured: Kind::ALL.map(|kind| OfKind::of(config, kind)), live: AtomicU32::new(0) }
    }

    /// Nothing of any kind.
    pub(crate) fn none() -> Self {
        Self { configured: [None; Kind::ALL.len()], live: AtomicU32::new(0) }
    }

    /// What is measured of a kind now.
    pub(crate) fn get(&self, kind: Kind) -> Option<Request> {
        let OfKind { ops, own, eps } = self.configured[kind as usize]?;
        if kind.is_feature() {
            return Some(Request { statistics: StatisticSet::EMPTY, eps });
        }
        let live = self.live.load(Ordering::Relaxed);
        let set = StatisticSet::from_bits(live as u16);
        let asked = if live & REPLACES == 0 { ops.union(set) } else { set };
        Some(Request { statistics: asked.union(own), eps })
    }

    /// Measures `ops` of every kind from now on.
    pub(crate) fn replace(&self, ops: StatisticSet) {
        self.live.store(REPLACES | u32::from(ops.bits()), Ordering::Relaxed);
    }

    /// Measures `ops` beside what is measured anyway, until [`replace`](Self::replace).
    pub(crate) fn add(&self, ops: StatisticSet) {
        self.live.fetch_or(u32::from(ops.bits()), Ordering::Relaxed);
    }
}

impl OfKind {
    fn of(config: &Config, kind: Kind) -> Option<Self> {
        let Some(signal) = config.signal(kind) else {
            // A feature is computed by the front: there is nothing to read for it here.
            let nothing = Self { ops: StatisticSet::EMPTY, own: StatisticSet::EMPTY, eps: 0.0 };
            return config.measures(kind).then_some(nothing);
        };
        let mut own = if config.prometheus.is_some() { SCRAPE_STATISTICS } else { StatisticSet::EMPTY };
        // The global norm in `steps.csv` is built from the tensors' norms, the ratio of a change from its own.
        if matches!(kind, Kind::GradUnreduced | Kind::GradReduced | Kind::Update) {
            own = own.with(Statistic::Norm);
        }
        Some(Self { ops: signal.set(), own, eps: signal.eps })
    }
}
