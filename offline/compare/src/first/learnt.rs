//! What a walk has learnt on its way, and what follows for the next operator.

use std::collections::{HashMap, HashSet};

use trainmon_capture_files::Operator;

use super::compared::Comparer;
use super::magnitude::Magnitude;
use super::noise::Rounding;
use crate::deviation::{Deviation, What};
use crate::fingerprint::Fingerprint;
use crate::judge::coarse;
use crate::rounding::coarsest;

/// What is known of a rank's rounding, and of what calls of one side alone did. Judging reads it, learning changes it.
#[derive(Default)]
pub(super) struct Learnt {
    pub(super) rounding: Rounding,
    /// The largest gradient that went into the last backward.
    pub(super) gradient: Option<Magnitude>,
    /// By number of elements: the largest element of a gradient that an operator of this step gave.
    pub(super) gradients: HashMap<u64, f64>,
    /// What calls of one side alone gave.
    pub(super) given: HashSet<Fingerprint>,
    /// What calls of one side alone made of a tensor in place, as part of an update.
    pub(super) changed: HashSet<Fingerprint>,
    /// Parameters that were told to be apart by what an optimizer makes of rounding.
    pub(super) unsure: HashSet<Fingerprint>,
    /// Operators that were looked at on both sides.
    pub(super) compared: usize,
    /// Whether a fused operator went by whose results have no checksum on one side: what follows from them may differ in every
    /// checksum by rounding.
    pub(super) is_blind: bool,
}

impl Learnt {
    /// Takes in a difference of the size of rounding; gives it where it tells something.
    pub(super) fn note_rounding(&mut self, operator: &Operator, deviation: Deviation) -> Option<f64> {
        // An argument that is a little apart tells what it is made of, and that is known already.
        if !deviation.is_some() || deviation.relative.is_infinite() || deviation.what == What::Argument {
            return None;
        }
        self.rounding.is_seen = true;
        self.rounding.coarse = self.rounding.coarse.max(coarse(operator));
        self.rounding.largest = self.rounding.largest.max(deviation.relative);
        Some(deviation.relative)
    }

    /// One large product rounds otherwise than several small ones, and statistics of a part's view otherwise than of the part
    /// alone: what follows differs by round-off whether it is seen here or not.
    pub(super) fn expect_rounding(&mut self, operator: &Operator) {
        self.rounding.is_seen = true;
        self.rounding.coarse = self.rounding.coarse.max(coarse(operator));
        self.rounding.largest = self.rounding.largest.max(coarsest(operator));
    }
}

/// How far values may be apart by what has been learnt so far: the judge of one operator at a time. Its methods only read.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'w, 'c> {
    pub(super) comparer: Comparer<'c>,
    pub(super) learnt: &'w Learnt,
}
