//! What is found in one rank.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use trainmon_core::CALL_MARK;

use super::names::TensorKey;
use super::noise::{BoundSource, is_in_order};

/// A series beyond its bound, at the first step where it is.
#[derive(Clone, Debug, Serialize)]
pub struct Divergence {
    /// The rank; `None`: of the rows of all ranks, put together.
    pub rank: Option<u32>,
    /// The step.
    pub step: u64,
    /// What was measured.
    #[serde(flatten)]
    pub tensor: TensorKey,
    /// Which of its statistics; `shape` if that is what differs.
    pub statistic: String,
    /// The target's value.
    #[serde(serialize_with = "super::json::number")]
    pub target: f64,
    /// The golden run's value.
    #[serde(serialize_with = "super::json::number")]
    pub golden: f64,
    /// Their difference relative to the magnitude of the tensor.
    #[serde(serialize_with = "super::json::number")]
    pub difference: f64,
    /// How far they may be apart, likewise.
    #[serde(serialize_with = "super::json::number")]
    pub bound: f64,
    /// Where the bound comes from.
    pub bound_source: BoundSource,
    /// Beside numbers: which shapes differ.
    pub note: Option<String>,
    /// Whether round-off of one step might explain it: it parts since others of the step do.
    #[serde(skip)]
    pub is_faint: bool,
    /// Place of the kind in the step, and of the row among its kind.
    #[serde(skip)]
    pub place: (u8, usize),
    /// Dimensions of the tensor, where its shape is known.
    #[serde(skip)]
    pub dimensions: Option<usize>,
}

impl Divergence {
    /// How many times the bound the difference is.
    pub fn excess(&self) -> f64 {
        if self.bound > 0.0 { self.difference / self.bound } else { f64::INFINITY }
    }
}

/// The divergence that came first in its step: by place of its kind, then by row where rows are in order, then those that are
/// certain, then by excess.
pub fn leader_of(divergences: &[Divergence]) -> usize {
    let before = |one: &Divergence, other: &Divergence| {
        let row = |divergence: &Divergence| if is_in_order(&divergence.tensor.kind) { divergence.place.1 } else { 0 };
        // Rows of a module's further calls stand beside those of its first.
        let is_again = |divergence: &Divergence| divergence.tensor.name.contains(CALL_MARK);
        let places = one.place.0.cmp(&other.place.0);
        let places = places.then(is_again(one).cmp(&is_again(other))).then(row(one).cmp(&row(other)));
        places
            .then(one.is_faint.cmp(&other.is_faint))
            .then(other.excess().total_cmp(&one.excess()))
            .then(one.rank.cmp(&other.rank))
    };
    let first = divergences.iter().enumerate().min_by(|one, other| before(one.1, other.1));
    first.map_or(0, |(place, _)| place)
}

/// Steps in which both runs blow up.
#[derive(Clone, Debug, Serialize)]
pub struct BlowUp {
    /// The first of them in which something was beyond its bound.
    pub first: u64,
    /// The last.
    pub last: u64,
    /// What has grown there, in words.
    pub sign: String,
}

/// Rows that are missing in one of the runs, in steps both have.
#[derive(Clone, Debug, Default)]
pub struct Gap {
    /// How many.
    pub rows: u64,
    /// The first and the last step in which one is.
    pub steps: Option<(u64, u64)>,
    /// Of what, where it is known.
    pub names: Vec<String>,
}

impl Gap {
    pub(crate) fn widen(&mut self, step: u64) {
        self.rows += 1;
        let (first, last) = self.steps.unwrap_or((step, step));
        self.steps = Some((first.min(step), last.max(step)));
    }

    pub(crate) fn add(&mut self, other: &Self, name: String) {
        if other.rows == 0 {
            return;
        }
        self.names.push(name);
        self.rows += other.rows;
        let both = [self.steps, other.steps].into_iter().flatten();
        self.steps = both.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    }
}

/// What was learnt of one rank.
#[derive(Debug, Default)]
pub struct Judged {
    /// Every series that parts, at its first step.
    pub divergences: Vec<Divergence>,
    /// Where both runs blow up, and something was beyond its bound.
    pub blow_up: Option<BlowUp>,
    /// Values compared, those that are equal, and those whose printed digits tell nothing.
    pub values: u64,
    /// As above.
    pub equal: u64,
    /// As above.
    pub coarse: u64,
    /// Tensors judged in the first common step, by place of their kind.
    pub tensors_at_start: HashMap<u8, usize>,
    /// The first row judged in that step, likewise.
    /// How many.
    pub rows_at_start: HashMap<u8, usize>,
    /// Median difference of each step.
    pub noise: Vec<(u64, f64)>,
    /// The median difference of the first step, where that is more than sums in float32 are off by and nothing says that the runs were
    /// computed in a coarser type.
    pub coarse_start: Option<f64>,
    /// Tensors that hold nothing but round-off.
    pub nothing: Vec<String>,
    /// Kind and name of attention biases whose difference may be rounding that an optimizer made large, each with its first step.
    pub unsure: BTreeMap<(String, String), u64>,
    /// Steps in which only gradients differed, by a little, and agreed again in the next step. Of each step the first difference.
    pub jumps: Vec<Divergence>,
    /// What two monitors measure otherwise on purpose, and so was not compared.
    pub other_measures: BTreeSet<&'static str>,
    /// Into how many micro-batches target and golden run divide a step, where that is another number: what is measured in each of them
    /// is not held against each other.
    pub micro_batches: Option<[u32; 2]>,
    /// Tensors whose element types differ.
    pub other_types: u64,
    /// Series that came closest to their bound without passing it, the closest first.
    pub closest: Vec<(f64, TensorKey, String)>,
    /// Tensors on one side only.
    pub only_target: Vec<TensorKey>,
    /// As above.
    pub only_golden: Vec<TensorKey>,
    /// Of tensors both have: what the target lacks in some steps, and what the golden run lacks, by kind.
    pub gaps: [BTreeMap<String, Gap>; 2],
    /// Kinds and their statistics that only the target has, and that only the golden run has.
    pub statistics: [BTreeSet<(String, String)>; 2],
}
