//! The findings for one rank.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use trainmon_core::CALL_MARK;

use super::names::TensorKey;
use super::noise::{BoundSource, is_in_order};

/// A series beyond its tolerance, in the first step in which it is.
#[derive(Clone, Debug, Serialize)]
pub struct Divergence {
    /// The rank; `None` for the combined rows of all ranks.
    pub rank: Option<u32>,
    /// The step.
    pub step: u64,
    /// The tensor and kind.
    #[serde(flatten)]
    pub tensor: TensorKey,
    /// The statistic; `shape` if the shapes differ.
    pub statistic: String,
    /// The target's value.
    #[serde(serialize_with = "super::json::number")]
    pub target: f64,
    /// The golden run's value.
    #[serde(serialize_with = "super::json::number")]
    pub golden: f64,
    /// The difference relative to the magnitude of the tensor.
    #[serde(serialize_with = "super::json::number")]
    pub difference: f64,
    /// The tolerance, relative to the same magnitude.
    #[serde(serialize_with = "super::json::number")]
    pub bound: f64,
    /// The origin of the tolerance.
    pub bound_source: BoundSource,
    /// An addition to the numbers: which shapes differ.
    pub note: Option<String>,
    /// Whether rounding in one step might explain it; it counts because others in the step diverge.
    #[serde(skip)]
    pub is_faint: bool,
    /// The position of the kind in the step, and of the row in its kind.
    #[serde(skip)]
    pub place: (u8, usize),
    /// The number of dimensions of the tensor, if its shape is known.
    #[serde(skip)]
    pub dimensions: Option<usize>,
}

impl Divergence {
    /// The difference divided by the tolerance.
    pub fn excess(&self) -> f64 {
        if self.bound > 0.0 { self.difference / self.bound } else { f64::INFINITY }
    }
}

/// The index of the earliest divergence in the step: by position of its kind, then by row if rows are in order, then
/// those that are certain, then by excess.
pub fn leader_of(divergences: &[Divergence]) -> usize {
    let before = |one: &Divergence, other: &Divergence| {
        let row = |divergence: &Divergence| if is_in_order(&divergence.tensor.kind) { divergence.place.1 } else { 0 };
        // Rows of a module's further calls come next to those of its first.
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

/// The steps in which both runs blow up.
#[derive(Clone, Debug, Serialize)]
pub struct BlowUp {
    /// The first of these steps with a value beyond its tolerance.
    pub first: u64,
    /// The last of these steps.
    pub last: u64,
    /// The quantity that has grown, in words.
    pub sign: String,
}

/// Rows that one of the runs lacks, in steps that both have.
#[derive(Clone, Debug, Default)]
pub struct Gap {
    /// The number of missing rows.
    pub rows: u64,
    /// The first and the last step with a missing row.
    pub steps: Option<(u64, u64)>,
    /// The names of the missing rows, if known.
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

/// The findings for one rank.
#[derive(Debug, Default)]
pub struct Judged {
    /// All series that diverge, each in its first step.
    pub divergences: Vec<Divergence>,
    /// The steps in which both runs blow up and a value exceeds its tolerance.
    pub blow_up: Option<BlowUp>,
    /// The number of values compared.
    pub values: u64,
    /// The number of equal values.
    pub equal: u64,
    /// The number of values with too few printed digits to compare.
    pub coarse: u64,
    /// The number of tensors judged in the first common step, by position of their kind.
    pub tensors_at_start: HashMap<u8, usize>,
    /// The number of rows judged before the first divergence in that step, by position of their kind.
    pub rows_at_start: HashMap<u8, usize>,
    /// The median difference of each step.
    pub noise: Vec<(u64, f64)>,
    /// The median difference of the first step, if it exceeds the rounding of sums in float32 and nothing shows that
    /// the runs were computed in a coarser type.
    pub coarse_start: Option<f64>,
    /// Tensors that contain only rounding errors.
    pub nothing: Vec<String>,
    /// Kind and name of attention biases whose difference may be rounding amplified by an optimizer, each with its
    /// first step.
    pub unsure: BTreeMap<(String, String), u64>,
    /// Steps in which only gradients differed slightly and agreed again in the next step. The first difference of each
    /// step.
    pub jumps: Vec<Divergence>,
    /// Kinds that the two monitors measure differently on purpose, which are not compared.
    pub other_measures: BTreeSet<&'static str>,
    /// The numbers of micro-batches per step in target and golden run, if they differ. Values per micro-batch are then
    /// not compared.
    pub micro_batches: Option<[u32; 2]>,
    /// The number of tensors whose element types differ.
    pub other_types: u64,
    /// The series that came closest to their tolerance without exceeding it, closest first.
    pub closest: Vec<(f64, TensorKey, String)>,
    /// Tensors that only the target has.
    pub only_target: Vec<TensorKey>,
    /// Tensors that only the golden run has.
    pub only_golden: Vec<TensorKey>,
    /// For tensors in both runs, the steps missing in the target and in the golden run, by kind.
    pub gaps: [BTreeMap<String, Gap>; 2],
    /// Kinds and statistics that only the target has, and that only the golden run has.
    pub statistics: [BTreeSet<(String, String)>; 2],
}
