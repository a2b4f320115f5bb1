//! By name, backward calls counted anew.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{How, Pair};
use crate::compare::input::{Address, Capture};
use crate::compare::name::{Direction, OperatorName};

/// Pairs values of the same name. The number in a backward operator's name is that of its forward call, so one call more in the
/// forward shifts all of them: they are counted in the order they ran instead, as msprobe does. The target's values come first,
/// in its order, then what only the golden has, in its own.
pub fn exact(target: &Capture, golden: &Capture) -> Vec<Pair> {
    let (target_keys, golden_keys) = (keys(target, true), keys(golden, true));
    pair(target, &target_keys, golden, &golden_keys, |_| How::Name)
}

/// Every operator's name, backward operators' with their own count if asked for.
pub(crate) fn keys(capture: &Capture, renumber: bool) -> Vec<String> {
    let mut calls: HashMap<String, u32> = HashMap::new();
    let operators = capture.document.operators.iter();
    operators
        .map(|operator| match OperatorName::parse(&operator.name) {
            Some(name) if renumber && name.is_operator && name.direction == Direction::Backward => {
                let count = match calls.entry(name.callee.to_owned()) {
                    Entry::Occupied(mut entry) => {
                        *entry.get_mut() += 1;
                        *entry.get()
                    }
                    Entry::Vacant(entry) => *entry.insert(0),
                };
                format!("{}.{count}.backward", name.callee)
            }
            _ => operator.name.to_string(),
        })
        .collect()
}

/// Pairs operators of the same key and in them values of the same place.
pub(crate) fn pair(
    target: &Capture,
    target_keys: &[String],
    golden: &Capture,
    golden_keys: &[String],
    how: impl Fn(usize) -> How,
) -> Vec<Pair> {
    // A name that occurs twice (a capture appended to) pairs in order.
    let mut places: HashMap<(&str, &str), Vec<Address>> = HashMap::new();
    for address in golden.addresses() {
        let key = (golden_keys[address.operator as usize].as_str(), &*golden.at(address).value.place);
        places.entry(key).or_default().push(address);
    }
    for addresses in places.values_mut() {
        addresses.reverse();
    }
    let mut pairs = Vec::new();
    let mut is_paired = vec![Vec::new(); golden.document.operators.len()];
    for (taken, operator) in is_paired.iter_mut().zip(&golden.document.operators) {
        *taken = vec![false; operator.values.len()];
    }
    for address in target.addresses() {
        let operator = address.operator as usize;
        let key = (target_keys[operator].as_str(), &*target.at(address).value.place);
        let found = places.get_mut(&key).and_then(Vec::pop);
        let mut how = how(operator);
        if let Some(found) = found {
            is_paired[found.operator as usize][found.value as usize] = true;
            if how == How::Name && target.at(address).operator.name != golden.at(found).operator.name {
                how = How::Renumbered;
            }
        }
        pairs.push(Pair { target: Some(address), golden: found, how });
    }
    let left = golden.addresses().filter(|address| !is_paired[address.operator as usize][address.value as usize]);
    pairs.extend(left.map(|address| Pair { target: None, golden: Some(address), how: How::Name }));
    pairs
}
