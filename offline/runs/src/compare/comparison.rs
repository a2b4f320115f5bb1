//! What came of comparing runs.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::Serialize;

use trainmon_baseline::{BlowUp, Divergence, NewestRun, StepRange, TensorKey, place_of};

use super::replay::Curve;
use super::verdict::{Level, Verdict};

/// What came of comparing runs.
#[derive(Debug, Serialize)]
pub struct RunComparison {
    /// The run in question.
    pub target: PathBuf,
    /// The runs it is measured by.
    pub golden: Vec<PathBuf>,
    /// Which runs were taken of paths that hold several.
    pub newest: Vec<NewestRun>,
    /// The answer.
    pub verdict: Verdict,
    /// What it says first, if anything parts.
    pub first: Option<Divergence>,
    /// Every series that parts, at its first step: by step; of the first step the leading one first and the others by how far
    /// they are beyond their bounds.
    pub parted: Vec<Divergence>,
    /// One per rank that both have; one where the rows of all ranks were put together.
    pub ranks: Vec<RankComparison>,
    /// What is on one side only, what was not judged.
    pub notes: Vec<String>,
    /// What was left out of the files.
    pub warnings: Vec<String>,
    /// The leading series over all steps, six at most; the series closest to their bounds if nothing parts.
    #[serde(skip)]
    pub curves: Vec<Curve>,
}

/// One rank.
#[derive(Debug, Serialize)]
pub struct RankComparison {
    /// The rank; `None`: those of all ranks together.
    pub rank: Option<u32>,
    /// Where its files lie.
    pub target: PathBuf,
    /// As above, of the first golden run.
    pub golden: PathBuf,
    /// Which steps were compared.
    pub steps: StepRange,
    /// Numbers compared, those that are equal, and those printed with too few digits to tell anything.
    pub values: u64,
    /// As above.
    pub equal: u64,
    /// As above.
    pub coarse: u64,
    /// Decimals the numbers are rounded to, if they are.
    pub rounded_to: Option<u16>,
    /// How far apart the runs are where nothing parts.
    pub noise: Option<Noise>,
    /// Steps in which something is beyond its bound, and nobody can tell since both runs blow up.
    pub blow_up: Option<BlowUp>,
    /// Into how many micro-batches target and golden run divide a step, where that is another number.
    pub micro_batches: Option<[u32; 2]>,
    /// A moment that the target lacks in some first steps, and the first of them.
    #[serde(skip)]
    pub(super) moments_missing: Option<(String, u64)>,
    /// The first and the last step in which the golden run has activations and the target has not.
    #[serde(skip)]
    pub(super) activations_missing: Option<(u64, u64)>,
    #[serde(skip)]
    pub(super) only_target: Vec<TensorKey>,
    #[serde(skip)]
    pub(super) only_golden: Vec<TensorKey>,
    #[serde(skip)]
    pub(super) tensors_at_start: HashMap<u8, usize>,
    #[serde(skip)]
    pub(super) rows_at_start: HashMap<u8, usize>,
}

/// Median differences of norms, relative.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Noise {
    /// In the first common step.
    pub first: f64,
    /// In the last one.
    pub last: f64,
    /// At most before the first divergence; at most of all if nothing parts.
    pub before: f64,
}

impl RankComparison {
    /// Whether tensors of this kind were judged in the first common step.
    pub(super) fn has_kind(&self, kind: &str) -> bool {
        self.tensors_at_start.contains_key(&place_of(kind, ""))
    }
}

impl RunComparison {
    /// Whether the runs differ, or nobody can tell.
    pub fn differs(&self) -> bool {
        self.verdict.level == Level::Error
    }
}

/// A rank's number; of all ranks together a word.
pub(super) fn in_a_cell(rank: Option<u32>) -> String {
    rank.map_or_else(|| "all".to_owned(), |rank| rank.to_string())
}
