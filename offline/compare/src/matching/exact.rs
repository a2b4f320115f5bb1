//! By name, with backward calls renumbered.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use trainmon_capture_files::{Operator, Value};

use super::listed::unlisted;
use super::pair::{Aligned, How, Pair};
use super::wrapped::unwrapped;
use crate::input::Capture;
use crate::item::Address;
use crate::name::Hashes;
use crate::name::{Direction, OperatorName};

/// Pairs values of the same name. The number in a backward operator's name is that of its forward call, so one additional
/// forward call would shift all of them: they are counted in execution order instead, as in msprobe. The target's values come
/// first in their order, then those of the baseline only.
pub fn exact(target: &Capture, golden: &Capture) -> Vec<Pair> {
    let (target_keys, golden_keys) = (keys(target, true), keys(golden, true));
    pair(target, &target_keys, golden, &golden_keys, |_| How::Name)
}

/// Keys without the index of a list and, on request, without the additions of wrappers.
pub(super) fn plain_keys(capture: &Capture, is_listed: bool, is_unwrapped: bool) -> Vec<String> {
    let plain = |key: String| {
        let key = if is_unwrapped { unwrapped(&key).into_owned() } else { key };
        unlisted(&key, is_listed).into_owned()
    };
    keys(capture, true).into_iter().map(plain).collect()
}

/// The names of all operators; on request, with backward operators renumbered.
pub(crate) fn keys(capture: &Capture, renumber: bool) -> Vec<String> {
    let mut calls: HashMap<&str, u32, Hashes> = HashMap::default();
    let operators = capture.document.operators.iter();
    operators
        .map(|operator| match OperatorName::parse(&operator.name) {
            Some(name) if renumber && name.is_operator && name.direction == Direction::Backward => {
                let count = match calls.entry(name.callee) {
                    Entry::Occupied(mut entry) => {
                        *entry.get_mut() += 1;
                        *entry.get()
                    }
                    Entry::Vacant(entry) => *entry.insert(0),
                };
                format!("{}.{count}.backward", name.callee)
            }
            // Calls after joined operators count as on the side that has them fused.
            Some(name) if renumber && name.is_operator => {
                format!("{}.{}.forward", name.callee, capture.joined.number(name))
            }
            _ => operator.name.to_string(),
        })
        .collect()
}

/// Pairs operators with the same key, and their values by place.
pub(crate) fn pair(
    target: &Capture,
    target_keys: &[String],
    golden: &Capture,
    golden_keys: &[String],
    how: impl Fn(usize) -> How,
) -> Vec<Pair> {
    let target = Side { capture: target, keys: target_keys, place: &own_place };
    let golden = Side { capture: golden, keys: golden_keys, place: &own_place };
    pair_by_places(&target, &golden, how)
}

#[expect(clippy::unnecessary_wraps, reason = "other modes have values without a place")]
fn own_place(_: usize, value: &Value) -> Option<Cow<'_, str>> {
    Some(Cow::Borrowed(&value.place))
}

/// Pairs values of the same place in aligned operators. `how`: the way in which operators with another name were paired.
pub(super) fn pair_aligned(
    target: &Capture,
    golden: &Capture,
    aligned: &[Aligned],
    how: impl Fn(usize) -> How,
) -> Vec<Pair> {
    let mut twins = vec![None; target.document.operators.len()];
    for &(one, other) in aligned {
        if let Some(one) = one {
            twins[one as usize] = other;
        }
    }
    let side = |capture| Side { capture, keys: &[], place: &own_place };
    pair_by_twins(&side(target), &side(golden), &twins, how)
}

/// Operators with the same name. Most names are unique, which takes no additional memory.
#[derive(Default)]
struct SameName {
    next: Option<u32>,
    /// The next of them is at the end.
    later: Vec<u32>,
}

impl SameName {
    /// Puts an operator before all others.
    fn put(&mut self, operator: u32) {
        self.later.extend(self.next.replace(operator));
    }

    fn take(&mut self) -> Option<u32> {
        let found = self.next.take();
        self.next = self.later.pop();
        found
    }
}

/// One side of a pairing.
pub(super) struct Side<'s> {
    /// The capture.
    pub(super) capture: &'s Capture,
    /// The keys of its operators.
    pub(super) keys: &'s [String],
    /// The place by which a value pairs; `None` if it has no counterpart.
    pub(super) place: &'s dyn for<'v> Fn(usize, &'v Value) -> Option<Cow<'v, str>>,
}

/// Pairs values whose places may differ from their names.
pub(super) fn pair_by_places(target: &Side<'_>, golden: &Side<'_>, how: impl Fn(usize) -> How) -> Vec<Pair> {
    // A repeated name (in a capture that was appended to) pairs in order.
    let mut places: HashMap<&str, SameName, Hashes> = HashMap::default();
    places.reserve(golden.keys.len());
    for (index, key) in golden.keys.iter().enumerate().rev() {
        places.entry(key).or_default().put(index as u32);
    }
    let take = |key: &String| places.get_mut(key.as_str()).and_then(SameName::take);
    let twins: Vec<Option<u32>> = target.keys.iter().map(take).collect();
    pair_by_twins(target, golden, &twins, how)
}

/// Pairs the values of operators with known counterparts: `twins` has one for each operator of the target.
fn pair_by_twins(target: &Side<'_>, golden: &Side<'_>, twins: &[Option<u32>], how: impl Fn(usize) -> How) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut twin_of = vec![None; golden.operators().len()];
    for ((operator, &twin), index) in target.operators().iter().zip(twins).zip(0_u32..) {
        let mut how = how(index as usize);
        if let Some(twin) = twin {
            twin_of[twin as usize] = Some(index);
            let is_same_name = operator.name == golden.operators()[twin as usize].name;
            how = match how {
                How::Name if !is_same_name => How::Renumbered,
                _ if is_same_name => How::Name,
                how => how,
            };
        }
        for at in 0..operator.values.len() as u32 {
            let address = Address { operator: index, value: at };
            let found = twin.and_then(|twin| golden.value_at(twin, at, &target.place_of(address)?));
            pairs.push(Pair { target: Some(address), golden: found, how });
        }
    }
    let is_left = |address: &Address| {
        let twin = twin_of[address.operator as usize];
        let place = golden.place_of(*address);
        twin.is_none_or(|twin| place.is_none_or(|place| target.value_at(twin, address.value, &place).is_none()))
    };
    let left = golden.capture.addresses().filter(is_left);
    pairs.extend(left.map(|address| Pair { target: None, golden: Some(address), how: How::Name }));
    pairs
}

impl Side<'_> {
    fn operators(&self) -> &[Operator] {
        &self.capture.document.operators
    }

    fn place_of(&self, address: Address) -> Option<Cow<'_, str>> {
        (self.place)(address.operator as usize, self.capture.at(address).value)
    }

    /// The value of an operator at this place; usually at the same index.
    fn value_at(&self, operator: u32, index: u32, place: &str) -> Option<Address> {
        let count = self.operators()[operator as usize].values.len() as u32;
        let has_place = |value: &u32| {
            let address = Address { operator, value: *value };
            *value < count && self.place_of(address).is_some_and(|other| other == place)
        };
        let found = Some(index).filter(has_place).or_else(|| (0..count).find(has_place));
        found.map(|value| Address { operator, value })
    }
}
