//! The state of a walk, and its consequences for the next operator.

use std::collections::{HashMap, HashSet};

use trainmon_capture_files::Operator;

use super::compared::Comparer;
use super::magnitude::Magnitude;
use super::noise::Rounding;
use crate::deviation::{Deviation, What};
use crate::fingerprint::Fingerprint;
use crate::judge::coarse;
use crate::rounding::coarsest;

/// The rounding and the one-sided calls of a rank so far. Judging reads it, learning changes it.
#[derive(Default)]
pub(super) struct Learnt {
    pub(super) rounding: Rounding,
    /// The largest gradient among the inputs of the last backward.
    pub(super) gradient: Option<Magnitude>,
    /// By number of elements: the largest element of any gradient in this step.
    pub(super) gradients: HashMap<u64, f64>,
    /// Results of one-sided calls.
    pub(super) given: HashSet<Fingerprint>,
    /// Tensors that one-sided calls changed in place, as part of an update.
    pub(super) changed: HashSet<Fingerprint>,
    /// Parameters already reported as possibly amplified rounding.
    pub(super) unsure: HashSet<Fingerprint>,
    /// The number of operators compared.
    pub(super) compared: usize,
    /// Whether a fused operator without result checksums on one side has passed: all later checksums may differ by rounding.
    pub(super) is_blind: bool,
}

impl Learnt {
    /// Records a difference of the size of rounding; returns it if it is informative.
    pub(super) fn note_rounding(&mut self, operator: &Operator, deviation: Deviation) -> Option<f64> {
        // A small difference of an argument comes from a value that is known already.
        if !deviation.is_some() || deviation.relative.is_infinite() || deviation.what == What::Argument {
            return None;
        }
        self.rounding.is_seen = true;
        self.rounding.coarse = self.rounding.coarse.max(coarse(operator));
        self.rounding.largest = self.rounding.largest.max(deviation.relative);
        Some(deviation.relative)
    }

    /// Expects rounding in later values, even if it is not visible here: one large product rounds differently from several
    /// small ones, and statistics of a view differ from those of the part alone.
    pub(super) fn expect_rounding(&mut self, operator: &Operator) {
        self.rounding.is_seen = true;
        self.rounding.coarse = self.rounding.coarse.max(coarse(operator));
        self.rounding.largest = self.rounding.largest.max(coarsest(operator));
    }
}

/// The tolerances for one operator, given what has been learnt so far. Its methods only read.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'w, 'c> {
    pub(super) comparer: Comparer<'c>,
    pub(super) learnt: &'w Learnt,
}
