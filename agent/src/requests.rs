//! The requested statistics of each kind, which can change during training.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use trainmon_core::config::Config;
use trainmon_core::{Kind, Statistic, StatisticSet};
use trainmon_exporters::SCRAPE_STATISTICS;
use trainmon_stats::Request;

/// A bit of `Requests::live`: the set in the low half is the complete request. Without it, the set is added to the config's.
const REPLACES: u32 = 1 << 16;

/// The top bit of a kind's word, set if it is measured. The low 16 bits are the columns, the next 16 the statistics for
/// trainmon's own series.
const MEASURED: u64 = 1 << 63;
const OWN_SHIFT: u32 = 16;

/// The requests by kind. Reading one, for every tensor, costs a few loads and no lock. They publish no other memory.
#[derive(Debug)]
pub(crate) struct Requests {
    by_kind: [OfKind; Kind::ALL.len()],
    /// A set of statistics for all kinds, and [`REPLACES`].
    live: AtomicU32,
}

/// The request of one kind: [`MEASURED`] with two sets, and the bits of `eps`.
#[derive(Debug, Default)]
struct OfKind {
    word: AtomicU64,
    eps: AtomicU64,
}

impl Requests {
    pub(crate) fn of(config: &Config) -> Self {
        let requests = Self::none();
        requests.take_up(config);
        requests
    }

    /// Requests nothing.
    pub(crate) fn none() -> Self {
        Self { by_kind: std::array::from_fn(|_| OfKind::default()), live: AtomicU32::new(0) }
    }

    /// Applies the requests of `config`. Call it between steps, so that no step has two sets of requests.
    pub(crate) fn take_up(&self, config: &Config) {
        for kind in Kind::ALL {
            let of_kind = &self.by_kind[kind as usize];
            let (word, eps) = asked_for(config, kind);
            of_kind.eps.store(eps.to_bits(), Ordering::Relaxed);
            of_kind.word.store(word, Ordering::Relaxed);
        }
        self.live.store(0, Ordering::Relaxed);
    }

    /// The current request of a kind.
    pub(crate) fn get(&self, kind: Kind) -> Option<Request> {
        let of_kind = &self.by_kind[kind as usize];
        let word = of_kind.word.load(Ordering::Relaxed);
        if word & MEASURED == 0 {
            return None;
        }
        let eps = f64::from_bits(of_kind.eps.load(Ordering::Relaxed));
        if kind.is_feature() || kind == Kind::Scalar {
            return Some(Request { statistics: StatisticSet::EMPTY, eps });
        }
        let (ops, own) = (StatisticSet::from_bits(word as u16), StatisticSet::from_bits((word >> OWN_SHIFT) as u16));
        let live = self.live.load(Ordering::Relaxed);
        let set = StatisticSet::from_bits(live as u16);
        let asked = if live & REPLACES == 0 { ops.union(set) } else { set };
        Some(Request { statistics: asked.union(own), eps })
    }

    /// Requests only `ops` of every kind from now on.
    pub(crate) fn replace(&self, ops: StatisticSet) {
        self.live.store(REPLACES | u32::from(ops.bits()), Ordering::Relaxed);
    }

    /// Requests `ops` in addition, until [`replace`](Self::replace).
    pub(crate) fn add(&self, ops: StatisticSet) {
        self.live.fetch_or(u32::from(ops.bits()), Ordering::Relaxed);
    }
}

/// A kind's word and `eps`.
fn asked_for(config: &Config, kind: Kind) -> (u64, f64) {
    let Some(signal) = config.signal(kind) else {
        // The front computes a feature, so nothing is read for it here.
        return (if config.measures(kind) { MEASURED } else { 0 }, 0.0);
    };
    let has_series = config.prometheus.is_some() || config.otlp.is_some();
    let mut own = if has_series { SCRAPE_STATISTICS } else { StatisticSet::EMPTY };
    // The global norm in `steps.csv` is computed from the tensors' norms, the ratio of an update from its norm.
    if kind.is_gradient() || kind == Kind::Update {
        own = own.with(Statistic::Norm);
    }
    own = own.union(config.alert.statistics(kind));
    let sets = u64::from(signal.set().bits()) | u64::from(own.bits()) << OWN_SHIFT;
    (MEASURED | sets, signal.eps)
}
