//! A step's captures in memory, of both sides and every rank.

use rayon::prelude::*;
use trainmon_capture_files::Task;

use super::evaluation::{Evaluation, Sides};
use super::first::Divergence;
use super::input::Capture;
use super::judge::GoldenSpreads;
use super::matching::{Alignment, Pair};

/// A step's two captures of every rank, in memory.
#[derive(Debug)]
pub struct StepCaptures {
    /// `graph`, `pynative` or empty.
    pub part: String,
    /// The target's number.
    pub step: u64,
    /// Whether one step was named, not a directory of steps.
    pub is_alone: bool,
    /// By rank.
    pub ranks: Vec<RankCaptures>,
    /// What the search saw in it; `None` if they have parted in an earlier step.
    pub divergence: Option<Divergence>,
}

/// A rank's two captures of a step.
#[derive(Debug)]
pub struct RankCaptures {
    /// Its number.
    pub rank: u64,
    /// The run in question.
    pub target: Capture,
    /// The run it is held against.
    pub golden: Capture,
    /// How far further golden runs are from it.
    pub spreads: Option<GoldenSpreads>,
    /// Which operators ran at the same place: the search and the page go by it.
    pub(crate) aligned: Alignment,
    /// Which values belong together.
    pub pairs: Vec<Pair>,
    /// What is known of them.
    pub evaluation: Evaluation,
    /// Whether one rank was named, not a directory of ranks.
    pub is_alone: bool,
    /// Whether it holds values a script saved by name.
    pub is_debug: bool,
}

impl RankCaptures {
    /// Both captures, with what is known of their values.
    pub fn sides(&self) -> Sides<'_> {
        Sides { target: &self.target, golden: &self.golden, evaluation: &self.evaluation }
    }

    /// Reads all tensors that a table shows, on all cores.
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
