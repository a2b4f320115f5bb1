//! What a walk over a rank's operators knows on its way.

use std::collections::HashSet;

use crate::buffers::Buffers;
use crate::input::Capture;
use crate::judge::Judge;

use super::compared::Comparer;
use super::finding::{Finding, Walked};
use super::magnitude::Magnitude;
use super::noise::Rounding;
use crate::fingerprint::Fingerprint;

/// A rank on its way through its operators.
pub(super) struct Walker<'c> {
    pub(super) target: &'c Capture,
    pub(super) golden: &'c Capture,
    pub(super) comparer: Comparer<'c>,
    pub(super) judge: Judge<'c>,
    /// Calls that look at memory which may not be written yet.
    pub(super) buffers: Buffers,
    pub(super) rounding: Rounding,
    /// The largest gradient that went into the last backward.
    pub(super) gradient: Option<Magnitude>,
    /// Calls of one side alone, not yet known to matter.
    pub(super) parted: Vec<Finding>,
    /// What calls of one side alone gave.
    pub(super) given: HashSet<Fingerprint>,
    /// What calls of one side alone made of a tensor in place, as part of an update.
    pub(super) changed: HashSet<Fingerprint>,
    /// Parameters that are told to be apart by what an optimizer makes of rounding.
    pub(super) unsure: HashSet<Fingerprint>,
    /// Whether a fused operator went by whose results have no checksum on one side: what follows from them may differ in every
    /// checksum by rounding.
    pub(super) is_blind: bool,
    /// Whether the sides update other parameters, since one has some of them fused: which call is whose nobody can tell.
    pub(super) is_uneven: bool,
    /// Places of operators in a part that is computed otherwise, with the same results.
    pub(super) region: HashSet<usize>,
    /// What follows backward of such parts.
    pub(super) excused: Excused,
    pub(super) walked: Walked,
}

/// What follows of parts that are computed otherwise.
#[derive(Debug, Default)]
pub(super) struct Excused {
    /// Forward calls in them, by callee and number: their backward is another, too.
    pub(super) calls: HashSet<(String, u32)>,
    /// Forward calls that ran in them, or gave what they take.
    pub(super) upstream: HashSet<(String, u32)>,
    /// Whether a parameter has another shape: so have its gradient and its moments.
    pub(super) is_reshaped: bool,
    /// What differs inside of them.
    pub(super) inside: HashSet<Fingerprint>,
}
