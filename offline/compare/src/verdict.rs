//! The results of a comparison of captures.

use super::first::{Divergence, Finding, Rewritten};

/// Whether and where two runs diverge.
#[derive(Clone, Debug)]
pub enum CaptureVerdict {
    /// No visible difference.
    Same,
    /// Differences of the size of rounding.
    Rounding {
        /// The step of the first one.
        step: u64,
        /// Its rank.
        rank: u64,
        /// The first operator that differs.
        operator: String,
        /// The largest difference of all.
        largest: f64,
    },
    /// Rewritten code on one side with the same results; nothing else differs by more than rounding.
    Rewritten {
        /// The first step with it.
        step: u64,
        /// The ranks with it.
        ranks: Vec<u64>,
        /// Its first and last operator, and the difference of the results.
        rewritten: Box<Rewritten>,
        /// The number of places in this step.
        places: usize,
    },
    /// No value differs by more than rounding, but the calls differ.
    OneSided {
        /// The step.
        step: u64,
        /// The ranks.
        ranks: Vec<u64>,
        /// The first one-sided call.
        finding: Box<Finding>,
        /// The number of operators that differ by rounding, and the largest difference.
        rounding: (usize, f64),
    },
    /// The runs diverge.
    Parts {
        /// The step.
        step: u64,
        /// The first rank, or all ranks that diverge in the same operator.
        ranks: Vec<u64>,
        /// The place.
        finding: Box<Finding>,
    },
    /// The captures have too little in common.
    CannotTell {
        /// The reason.
        why: &'static str,
        /// The capture that would allow a comparison.
        capture: &'static str,
    },
}

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct CaptureAnswer {
    /// The verdict.
    pub verdict: CaptureVerdict,
    /// The search result of the step with the divergence, for all its ranks.
    pub divergence: Option<Divergence>,
    /// The number of operators compared.
    pub compared: usize,
    /// Of these, the number with neither statistics nor checksums.
    pub unseen: usize,
    /// Values of which only the statistics were compared, because a tensor file cannot be read.
    pub unread: usize,
    /// Values with a finer dtype in the target, whose numbers agree.
    pub finer: usize,
    /// Values that are a rank's part on one side and whole on the other, as with FSDP beside DDP.
    pub parts: usize,
    /// Update operators of which only the arguments were compared: with fused parameters it is unknown which operator updates
    /// which one.
    pub unjudged: usize,
    /// Optimizer tensors whose difference is attributed to rounding, in the first step that has any.
    pub unsure: Vec<String>,
    /// Steps and ranks that only the target has.
    pub target_only: Vec<String>,
    /// Steps and ranks that only the baseline has.
    pub golden_only: Vec<String>,
}
