//! What a walk has learnt of a rank's rounding, kept from step to step.

use std::collections::HashMap;

use trainmon_dump::capture::TensorFacts;

use super::looks::Looks;

/// As quick as it is asked often: for each value of each operator.
type Hashes = foldhash::fast::RandomState;

/// Rounding so far.
#[derive(Clone, Debug, Default)]
pub struct Rounding {
    /// The largest difference put down to rounding, of values that are more than rounding.
    pub(super) largest: f64,
    /// A few units of round-off of the coarsest dtype that differed: what comes of it keeps that in a finer one.
    pub(super) coarse: f64,
    /// Whether anything differed.
    pub(super) is_seen: bool,
    /// What this step's operators gave.
    produced: HashMap<Looks, Produced, Hashes>,
    /// What the step before gave: parameters and moments stay as it left them.
    before: HashMap<Looks, Produced, Hashes>,
}

/// An output that was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Produced {
    /// How far it was apart.
    pub(super) deviation: f64,
    /// Whether it is all rounding: a sum that cancels, or what was made of one. How far that is apart says nothing.
    pub(super) is_all_rounding: bool,
}

impl Rounding {
    /// Begins another step.
    #[must_use]
    pub(super) fn next_step(self) -> Self {
        Self { before: self.produced, produced: HashMap::default(), ..self }
    }

    /// Keeps an output.
    pub(super) fn keep(&mut self, tensor: &TensorFacts, produced: Produced) {
        self.produced.insert(Looks::of(tensor), produced);
    }

    /// The operator's output that a value looks like.
    pub(super) fn producer(&self, tensor: &TensorFacts) -> Option<Produced> {
        let looks = Looks::of(tensor);
        self.produced.get(&looks).or_else(|| self.before.get(&looks)).copied()
    }

    /// Whether an output of this step looks like it.
    pub(super) fn is_of_this_step(&self, tensor: &TensorFacts) -> bool {
        self.produced.contains_key(&Looks::of(tensor))
    }

    /// The largest difference put down to rounding.
    pub fn largest(&self) -> f64 {
        self.largest
    }
}
