//! Operators put side by side in the order they ran.

use std::collections::{HashMap, HashSet};

use similar::DiffOp;
use trainmon_dump::capture::{Leaf, Operator, Section};

use crate::input::Capture;
use crate::name::OperatorName;
use crate::script::{Numbers, script};

use super::exact::{pair_aligned, plain_keys};
use super::listed::{one_is_listed, unlisted};
use super::pair::{Aligned, How, Pair};
use super::wrapped::{one_is_wrapped, unwrapped};

/// Puts the operators of two captures side by side.
///
/// Where both ran the same calls they pair by name. Else they pair by their place in the sequence of calls (a longest common
/// subsequence over what was called, in which module, with which shapes), so that one call more does not shift all that follow.
/// Nearly linear in time where few differ.
pub(super) fn align(target: &Capture, golden: &Capture) -> Sequence {
    let are_listed = one_is_listed(target, golden);
    let is_wrapped = one_is_wrapped(target, golden);
    let keys = |(capture, is_listed)| plain_keys(capture, is_listed, is_wrapped);
    let [target_keys, golden_keys] = [(target, are_listed[0]), (golden, are_listed[1])].map(keys);
    let named = by_name(&target_keys, &golden_keys);
    let is_by_name = named.is_some();
    let operators = named.unwrap_or_else(|| by_sequence(target, golden, are_listed, is_wrapped));
    let other_names = match (are_listed, is_wrapped) {
        ([false, false], false) => None,
        ([false, false], true) => Some(How::Wrapped),
        _ => Some(How::Listed),
    };
    Sequence { operators, is_by_name, other_names }
}

/// The operators of two captures side by side, and by what.
pub(super) struct Sequence {
    pub(super) operators: Vec<Aligned>,
    /// Both ran the same calls: each is beside the one of its name.
    is_by_name: bool,
    /// By what modules with other names were found: one side is a list of one model, or has wrappers.
    other_names: Option<How>,
}

impl Sequence {
    /// Pairs values of the same place in operators side by side. The target's values come first, in its order, then what only the
    /// golden has, in its own.
    pub(super) fn pairs(&self, target: &Capture, golden: &Capture) -> Vec<Pair> {
        let is_module = |operator: usize| target.document.operators[operator].name.starts_with("Module.");
        let how = |operator: usize| match (self.is_by_name, self.other_names.filter(|_| is_module(operator))) {
            (_, Some(how)) => how,
            (true, None) => How::Name,
            (false, None) => How::Sequence,
        };
        pair_aligned(target, golden, &self.operators, how)
    }
}

/// `None` unless both sides have the same keys.
fn by_name(target: &[String], golden: &[String]) -> Option<Vec<Aligned>> {
    if target.len() != golden.len() {
        return None;
    }
    if target == golden {
        return Some((0..target.len() as u32).map(|index| (Some(index), Some(index))).collect());
    }
    let places: HashMap<&str, u32> = golden.iter().zip(0..).map(|(key, index)| (key.as_str(), index)).collect();
    if places.len() != golden.len() {
        return None;
    }
    let paired = target.iter().zip(0..).map(|(key, index)| Some((Some(index), Some(*places.get(key.as_str())?))));
    let paired: Option<Vec<Aligned>> = paired.collect();
    paired
}

fn by_sequence(target: &Capture, golden: &Capture, are_listed: [bool; 2], is_wrapped: bool) -> Vec<Aligned> {
    let mut numbers = Numbers::new();
    let mut sequence = |capture: &Capture, is_listed: bool| {
        numbers.of(capture
            .document
            .operators
            .iter()
            .map(|operator| what_ran(operator, capture, (is_listed, is_wrapped))))
    };
    let (target_keys, golden_keys) = (sequence(target, are_listed[0]), sequence(golden, are_listed[1]));
    let mut aligned = Vec::new();
    for step in script(&target_keys, &golden_keys) {
        let (target, golden) = (step.old_range(), step.new_range());
        let (target, golden) = (target.start as u32..target.end as u32, golden.start as u32..golden.end as u32);
        if matches!(step, DiffOp::Equal { .. }) {
            aligned.extend(target.zip(golden).map(|(target, golden)| (Some(target), Some(golden))));
        } else {
            aligned.extend(golden.map(|golden| (None, Some(golden))));
            aligned.extend(target.map(|target| (Some(target), None)));
        }
    }
    pair_moved(&mut aligned, target, golden);
    let twins = aligned.iter().filter_map(|&(one, other)| one.zip(other)).collect();
    where_they_ran(&twins, target.document.operators.len(), golden.document.operators.len())
}

/// The operators in the target's order, by each one's counterpart; what only the golden has follows what ran before it there.
pub(super) fn where_they_ran(twins: &HashMap<u32, u32>, target: usize, golden: usize) -> Vec<Aligned> {
    let paired: HashSet<u32> = twins.values().copied().collect();
    let mut followers: HashMap<Option<u32>, Vec<Aligned>> = HashMap::new();
    let mut before = None;
    for operator in 0..golden as u32 {
        if paired.contains(&operator) {
            before = Some(operator);
        } else {
            followers.entry(before).or_default().push((None, Some(operator)));
        }
    }
    let mut operators = followers.remove(&None).unwrap_or_default();
    for operator in 0..target as u32 {
        let twin = twins.get(&operator).copied();
        operators.push((Some(operator), twin));
        operators.extend(followers.remove(&twin).filter(|_| twin.is_some()).unwrap_or_default());
    }
    operators
}

/// What is left over on both sides under one name ran at another time: gradients come in the order threads make them.
fn pair_moved(aligned: &mut Vec<Aligned>, target: &Capture, golden: &Capture) {
    let left = aligned.iter().filter_map(|pair| if let (None, Some(golden)) = pair { Some(*golden) } else { None });
    let mut left: HashMap<&str, u32> =
        left.map(|index| (&*golden.document.operators[index as usize].name, index)).collect();
    let mut taken = HashSet::new();
    for pair in aligned.iter_mut() {
        if let (Some(index), None) = *pair
            && let Some(found) = left.remove(&*target.document.operators[index as usize].name)
        {
            pair.1 = Some(found);
            taken.insert(found);
        }
    }
    aligned.retain(|pair| !matches!(pair, (None, Some(golden)) if taken.contains(golden)));
}

/// What was called, where, with which shapes.
fn what_ran(operator: &Operator, capture: &Capture, (is_listed, is_wrapped): (bool, bool)) -> String {
    let plain = |name: &str| {
        let name = if is_wrapped { unwrapped(name) } else { name.into() };
        unlisted(&name, is_listed).into_owned()
    };
    let Some(name) = OperatorName::parse(&operator.name) else { return operator.name.to_string() };
    let mut key = format!("{}:{:?}", plain(name.callee), name.direction);
    if let Some(parent) = capture.parent(&operator.name).and_then(|parent| parent.name.as_deref()) {
        let parent = OperatorName::parse(parent).map_or(parent, |name| name.callee);
        key.push('@');
        key.push_str(&plain(parent));
    }
    for value in operator.values.iter().filter(|value| value.section == Section::Input) {
        if let Leaf::Tensor(tensor) = &value.leaf {
            key.push_str(&crate::python::text(&tensor.shape));
        }
    }
    key
}
