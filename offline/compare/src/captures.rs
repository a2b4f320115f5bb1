//! The captures of a step in memory: both sides, all ranks.

use rayon::prelude::*;
use trainmon_capture_files::Task;

use super::evaluation::{Evaluation, Sides};
use super::first::Divergence;
use super::input::Capture;
use super::judge::GoldenSpreads;
use super::matching::{Alignment, Pair};

/// The captures of a step, for all ranks.
#[derive(Debug)]
pub struct StepCaptures {
    /// `graph`, `pynative` or empty.
    pub part: String,
    /// The step number in the target.
    pub step: u64,
    /// Whether the path is a single step, not a directory of steps.
    pub is_alone: bool,
    /// By rank.
    pub ranks: Vec<RankCaptures>,
    /// The search result of this step; `None` if the runs diverged in an earlier step.
    pub divergence: Option<Divergence>,
}

/// The two captures of a rank and step.
#[derive(Debug)]
pub struct RankCaptures {
    /// The rank number.
    pub rank: u64,
    /// The capture under test.
    pub target: Capture,
    /// The baseline.
    pub golden: Capture,
    /// The differences of further baselines from the first one.
    pub spreads: Option<GoldenSpreads>,
    /// The operators that ran at the same place, for the search and the page.
    pub(crate) aligned: Alignment,
    /// The pairs of values.
    pub pairs: Vec<Pair>,
    /// The evaluation of these pairs.
    pub evaluation: Evaluation,
    /// Whether the path is a single rank, not a directory of ranks.
    pub is_alone: bool,
    /// Whether the capture contains values that a script saved by name.
    pub is_debug: bool,
}

impl RankCaptures {
    /// Both captures, with what is known of their values.
    pub fn sides(&self) -> Sides<'_> {
        Sides { target: &self.target, golden: &self.golden, evaluation: &self.evaluation }
    }

    /// Reads all tensors for a table, on all cores.
    pub(super) fn read_tensors(&self, pairs: &[Pair]) {
        if [&self.target, &self.golden].into_iter().all(|capture| capture.document.task == Task::Tensor) {
            pairs.par_iter().for_each(|pair| {
                if let (Some(target), Some(golden)) = (pair.target, pair.golden) {
                    self.sides().elements(target, golden, |_| ());
                }
            });
        }
    }
}
