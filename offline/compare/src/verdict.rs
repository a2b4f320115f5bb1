//! What a comparison of captures can find.

use super::first::{Divergence, Finding, Rewritten};

/// Where two runs part, if they do.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Nothing that can be seen differs.
    Same,
    /// Differences are of the size of rounding: the first operator that has one, on which rank, in which step, and the largest.
    Rounding {
        /// In which step.
        step: u64,
        /// On which rank.
        rank: u64,
        /// The first operator that differs.
        operator: String,
        /// The largest difference of all.
        largest: f64,
    },
    /// A part is computed otherwise on one side, with the same results; nothing else differs by more than rounding.
    Rewritten {
        /// In which step first.
        step: u64,
        /// On which ranks.
        ranks: Vec<u64>,
        /// Where, until where, and how far the results are apart.
        rewritten: Box<Rewritten>,
        /// In how many places of this step.
        places: usize,
    },
    /// No value differs by more than rounding, but one side made calls the other did not: the first of them.
    OneSided {
        /// In which step.
        step: u64,
        /// On which ranks.
        ranks: Vec<u64>,
        /// Where.
        finding: Box<Finding>,
        /// How many operators differ by rounding, and the largest difference.
        rounding: (usize, f64),
    },
    /// They part.
    Parts {
        /// In which step.
        step: u64,
        /// On which rank first, or on which ranks in the same operator.
        ranks: Vec<u64>,
        /// Where.
        finding: Box<Finding>,
    },
    /// The captures hold nothing that could tell.
    CannotTell {
        /// Why.
        why: &'static str,
        /// What to capture to know.
        capture: &'static str,
    },
}

/// What a comparison found.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Where they part.
    pub verdict: Verdict,
    /// The step that has it, with all that its ranks say.
    pub divergence: Option<Divergence>,
    /// Operators that were looked at on both sides.
    pub compared: usize,
    /// Of these, with neither statistics nor checksums.
    pub unseen: usize,
    /// Values of which statistics alone were held against each other, because a file of their tensors cannot be read.
    pub unread: usize,
    /// Values that the target has in a finer dtype, with numbers that agree.
    pub finer: usize,
    /// Values that are a rank's part on one side and the whole on the other, as FSDP's parameters beside DDP's.
    pub parts: usize,
    /// Operators of updates of which arguments alone were judged, since one side has parameters fused: which is whose nobody can tell.
    pub unjudged: usize,
    /// Tensors of an optimizer that are apart by what it makes of rounding, of the first step that has any.
    pub unsure: Vec<String>,
    /// Steps and ranks of one side alone.
    pub target_only: Vec<String>,
    /// The same of the golden.
    pub golden_only: Vec<String>,
}
