//! By the sequence of calls, whatever their numbers.

use super::exact::pair;
use super::pair::{How, Pair};
use super::sequence::align;
use crate::input::Capture;

/// Pairs operators by their place in the sequence of calls ([`align`]) and in them values of the same place. The target's values
/// come first, in its order, then what only the golden has, in its own.
pub(crate) fn fuzzy(target: &Capture, golden: &Capture) -> Vec<Pair> {
    // Operators side by side have one key: their place in the sequence.
    let mut target_keys = vec![String::new(); target.document.operators.len()];
    let mut golden_keys = vec![String::new(); golden.document.operators.len()];
    for (place, (one, other)) in align(target, golden).into_iter().enumerate() {
        if let Some(one) = one {
            target_keys[one as usize] = place.to_string();
        }
        if let Some(other) = other {
            golden_keys[other as usize] = place.to_string();
        }
    }
    pair(target, &target_keys, golden, &golden_keys, |_| How::Sequence)
}
