//! The result of comparing runs.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::Serialize;

use trainmon_baseline::{BlowUp, Divergence, NewestRun, StepRange, TensorKey, place_of};

use super::replay::Curve;
use super::verdict::{Level, RunVerdict};

/// The result of comparing runs.
#[derive(Debug, Serialize)]
pub struct RunComparison {
    /// The run under test.
    pub target: PathBuf,
    /// The baselines.
    pub golden: Vec<PathBuf>,
    /// The selected runs of directories that contain several.
    pub newest: Vec<NewestRun>,
    /// The answer.
    pub verdict: RunVerdict,
    /// The first divergence, if there is one.
    pub first: Option<Divergence>,
    /// Every diverging series at its first step: by step; in the first step the leading one first, the others by their excess
    /// over the tolerance.
    pub parted: Vec<Divergence>,
    /// A comparison per common rank; a single one if the rows of all ranks were merged.
    pub ranks: Vec<RankComparison>,
    /// Data on one side only, and data that were not judged.
    pub notes: Vec<String>,
    /// Data omitted from damaged files.
    pub warnings: Vec<String>,
    /// The leading series over all steps, at most six; without a divergence, the series closest to their tolerances.
    #[serde(skip)]
    pub curves: Vec<Curve>,
}

/// The comparison of a rank.
#[derive(Debug, Serialize)]
pub struct RankComparison {
    /// The rank; `None` for the merged rows of all ranks.
    pub rank: Option<u32>,
    /// The directory or journal of the target.
    pub target: PathBuf,
    /// The directory or journal of the first baseline.
    pub golden: PathBuf,
    /// The compared steps.
    pub steps: StepRange,
    /// The number of compared values.
    pub values: u64,
    /// The number of equal values.
    pub equal: u64,
    /// The number of values with too few digits to compare.
    pub coarse: u64,
    /// The number of decimals to which the values are rounded, if any.
    pub rounded_to: Option<u16>,
    /// The difference of the runs apart from divergences.
    pub noise: Option<Noise>,
    /// Steps beyond the tolerance that cannot be judged because both runs blow up.
    pub blow_up: Option<BlowUp>,
    /// The numbers of micro-batches per step in target and baseline, if they differ.
    pub micro_batches: Option<[u32; 2]>,
    /// A moment that the target lacks in some first steps, and the first of these.
    #[serde(skip)]
    pub(super) moments_missing: Option<(String, u64)>,
    /// The first and the last step in which only the baseline has activations.
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

/// Median relative differences of norms.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Noise {
    /// In the first common step.
    pub first: f64,
    /// In the last common step.
    pub last: f64,
    /// The largest before the first divergence, or of all steps without one.
    pub before: f64,
}

impl RankComparison {
    /// Whether tensors of this kind were judged in the first common step.
    pub(super) fn has_kind(&self, kind: &str) -> bool {
        self.tensors_at_start.contains_key(&place_of(kind, ""))
    }
}

impl RunComparison {
    /// Whether the runs differ or are not comparable.
    pub fn differs(&self) -> bool {
        self.verdict.level == Level::Error
    }
}

/// A rank's number; a word for all ranks together.
pub(super) fn in_a_cell(rank: Option<u32>) -> String {
    rank.map_or_else(|| "all".to_owned(), |rank| rank.to_string())
}
