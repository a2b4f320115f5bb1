//! The edit script between two sequences.

use std::collections::HashMap;
use std::hash::Hash;

use similar::DiffOp;
use similar::algorithms::{Capture, Compact, Replace, myers};

/// Assigns equal items the same number, so that all sequences are numbers and the algorithm is compiled once.
pub(crate) struct Numbers<T>(HashMap<T, u32>);

impl<T: Eq + Hash> Numbers<T> {
    /// Starts without numbers.
    pub(crate) fn new() -> Self {
        Self(HashMap::new())
    }

    /// The numbers of a sequence.
    pub(crate) fn of(&mut self, things: impl Iterator<Item = T>) -> Vec<u32> {
        things.map(|thing| self.number(thing)).collect()
    }

    /// The number of an item.
    pub(crate) fn number(&mut self, thing: T) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(thing).or_insert(next)
    }
}

/// The shortest script by Myers' algorithm, including equal parts, in order. Nearly linear time if few items differ.
pub(crate) fn script(target: &[u32], golden: &[u32]) -> Vec<DiffOp> {
    let mut found = Compact::new(Replace::new(Capture::new()), target, golden);
    // Not through the generic entry, which compiles all algorithms.
    let Ok(()) = myers::diff(&mut found, target, 0..target.len(), golden, 0..golden.len());
    found.into_inner().into_inner().into_ops()
}
