//! By the sequence of calls, whatever their numbers.

use std::collections::HashMap;

use super::sequence::align;
use super::{How, Pair};
use crate::compare::input::{Address, Capture};

/// Pairs operators by their place in the sequence of calls ([`align`]) and in them values of the same place. The target's values
/// come first, in its order, then what only the golden has, in its own.
pub fn fuzzy(target: &Capture, golden: &Capture) -> Vec<Pair> {
    let aligned = align(target, golden);
    let other: HashMap<u32, u32> = aligned.iter().filter_map(|&(one, other)| Some((one?, other?))).collect();
    let mut taken = vec![Vec::new(); golden.document.operators.len()];
    let mut pairs = Vec::new();
    for address in target.addresses() {
        let item = target.at(address);
        let twin = other.get(&address.operator).copied().and_then(|operator| {
            let values = &golden.document.operators[operator as usize].values;
            let value = values.iter().position(|value| value.place == item.value.place)?;
            Some(Address { operator, value: value as u32 })
        });
        if let Some(twin) = twin {
            taken[twin.operator as usize].push(twin.value);
        }
        let same_name = twin.is_some_and(|twin| golden.at(twin).operator.name == item.operator.name);
        let how = if same_name { How::Name } else { How::Sequence };
        pairs.push(Pair { target: Some(address), golden: twin, how });
    }
    let left = golden.addresses().filter(|address| !taken[address.operator as usize].contains(&address.value));
    pairs.extend(left.map(|address| Pair { target: None, golden: Some(address), how: How::Name }));
    pairs
}
