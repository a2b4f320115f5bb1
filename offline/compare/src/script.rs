//! What has to be taken from one sequence and put in to get the other.

use std::collections::HashMap;
use std::hash::Hash;

use similar::DiffOp;
use similar::algorithms::{Capture, Compact, Replace, myers};

/// Gives equal things the same number, so that every comparison of sequences is one of numbers: the algorithm is compiled once.
pub(crate) struct Numbers<T>(HashMap<T, u32>);

impl<T: Eq + Hash> Numbers<T> {
    /// No thing has a number yet.
    pub(crate) fn new() -> Self {
        Self(HashMap::new())
    }

    /// The numbers of a sequence.
    pub(crate) fn of(&mut self, things: impl Iterator<Item = T>) -> Vec<u32> {
        things.map(|thing| self.number(thing)).collect()
    }

    /// The number of one thing.
    pub(crate) fn number(&mut self, thing: T) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(thing).or_insert(next)
    }
}

/// The shortest script by Myers' algorithm, what is the same included, in order. Nearly linear in time where few differ.
pub(crate) fn script(target: &[u32], golden: &[u32]) -> Vec<DiffOp> {
    let mut found = Compact::new(Replace::new(Capture::new()), target, golden);
    // Not by the choice of an algorithm: that compiles all of them.
    let Ok(()) = myers::diff(&mut found, target, 0..target.len(), golden, 0..golden.len());
    found.into_inner().into_inner().into_ops()
}
