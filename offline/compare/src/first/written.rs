//! The results of an update, however it was written: parameters by name, and other tensors written in place.

use std::collections::{HashMap, HashSet};

use trainmon_capture_files::{Operator, TensorFacts};

use super::agreement::SURE;
use super::compared::Comparer;
use super::memory::{Key, Parameters, numbers};
use super::operands::{inputs, results};
use crate::fingerprint::Fingerprint;
use crate::name::{Direction, OperatorName};
use crate::rounding::unit_roundoff;

/// Python operators that write into their first operand.
const IN_PLACE: [&str; 6] = ["__iadd__", "__iand__", "__imul__", "__ior__", "__isub__", "__itruediv__"];

/// The largest difference of a parameter after the same update, in units of round-off.
const UNITS: f64 = 8.0;

/// Whether both sides have the same results after an update that begins at a place. `None` if no parameter is traceable.
pub(super) fn is_updated_alike(comparer: Comparer<'_>, parameters: &Parameters, first: usize) -> Option<bool> {
    let operators = comparer.aligned.operators.get(first..).unwrap_or_default();
    let [of_target, of_golden] = parameters.both();
    let target = Written::by(operators.iter().filter_map(|&(one, _)| Some(comparer.operator(one?))), of_target);
    let golden = Written::by(operators.iter().filter_map(|&(_, other)| Some(comparer.golden(other?))), of_golden);
    // A step that is too small to be visible proves nothing.
    let is_moved = |written: &Written<'_>| written.parameters.values().any(Updated::is_moved);
    if !is_moved(&target) || !is_moved(&golden) {
        return None;
    }
    let is_same = |key: &&Key| {
        parameters.is_rounding(key)
            || target
                .parameters
                .get(*key)
                .zip(golden.parameters.get(*key))
                .is_some_and(|(one, other)| one.agrees(other))
    };
    let keys: HashSet<&Key> = target.parameters.keys().chain(golden.parameters.keys()).copied().collect();
    // Rewritten code may keep additional moments.
    let is_fewer = target.others.len() <= golden.others.len();
    let (fewer, more) = if is_fewer { (&target, &golden) } else { (&golden, &target) };
    Some(keys.iter().all(is_same) && are_alike(&fewer.others, &more.others))
}

/// The tensors that one side has written in place.
#[derive(Default)]
struct Written<'c> {
    parameters: HashMap<&'c Key, Updated<'c>>,
    /// The final moments and averages.
    others: Vec<&'c TensorFacts>,
}

/// A parameter before and after an update.
#[derive(Clone, Copy)]
struct Updated<'c> {
    before: &'c TensorFacts,
    behind: &'c TensorFacts,
}

impl<'c> Written<'c> {
    fn by(operators: impl Iterator<Item = &'c Operator>, names: &'c HashMap<Fingerprint, Key>) -> Self {
        let mut written = Self::default();
        let mut keys: HashMap<Fingerprint, &'c Key> = names.iter().map(|(looks, key)| (*looks, key)).collect();
        let mut temporary: HashSet<Fingerprint> = HashSet::new();
        for operator in operators {
            let Some(name) = OperatorName::parse(&operator.name).filter(|name| name.direction == Direction::Forward)
            else {
                continue;
            };
            let pair = inputs(operator).next().zip(results(operator).next()).filter(|_| is_in_place(name));
            let Some((before, behind)) = pair else {
                temporary.extend(results(operator).map(Fingerprint::of));
                continue;
            };
            let (was, looks) = (Fingerprint::of(before), Fingerprint::of(behind));
            if let Some(key) = keys.remove(&was) {
                keys.insert(looks, key);
                written.parameters.entry(key).or_insert(Updated { before, behind }).behind = behind;
            } else if temporary.contains(&was) {
                temporary.insert(looks);
            } else {
                written.others.retain(|other| Fingerprint::of(other) != was);
                written.others.push(behind);
            }
        }
        written
    }
}

impl Updated<'_> {
    /// Whether the update moved it by more than round-off.
    fn is_moved(&self) -> bool {
        let unit = self.behind.dtype.text().and_then(unit_roundoff).unwrap_or(0.0);
        let both = numbers(self.before).zip(numbers(self.behind));
        both.is_some_and(|(before, behind)| apart(before, behind) > UNITS * unit)
    }

    /// Whether both updates agree. An update is a small part of a parameter, which shows little of an error.
    fn agrees(&self, other: &Self) -> bool {
        let all = [self.before, self.behind, other.before, other.behind].map(numbers);
        let [Some(before), Some(one), Some(_), Some(two)] = all else { return false };
        let size = one[..2].iter().fold(0.0_f64, |most, it| most.max(it.abs()));
        let moved = (0..2).map(|at| (one[at] - before[at]).abs()).fold(0.0, f64::max);
        let unit = self.behind.dtype.text().and_then(unit_roundoff).unwrap_or(0.0);
        apart(one, two) <= UNITS * unit + if size > 0.0 { SURE * (moved / size).min(1.0) } else { 0.0 }
    }
}

fn are_alike(target: &[&TensorFacts], golden: &[&TensorFacts]) -> bool {
    let mut left: Vec<&TensorFacts> = golden.to_vec();
    target.iter().all(|one| {
        let is_it = |other: &&TensorFacts| {
            let both = numbers(one).zip(numbers(other)).filter(|_| one.elements() == other.elements());
            both.is_some_and(|(one, other)| apart(one, other) <= SURE)
        };
        left.iter().position(is_it).map(|found| left.swap_remove(found)).is_some()
    })
}

/// The differences of max, min, mean and norm, relative to the largest element and to the norm.
fn apart(one: [f64; 4], other: [f64; 4]) -> f64 {
    let size = one[..2].iter().chain(&other[..2]).fold(0.0_f64, |most, it| most.max(it.abs()));
    let part = |apart: f64, of: f64| if apart == 0.0 { 0.0 } else { apart / of };
    let elements = (0..3).map(|at| part((one[at] - other[at]).abs(), size)).fold(0.0, f64::max);
    elements.max(part((one[3] - other[3]).abs(), one[3].max(other[3])))
}

/// Whether a call writes into its first input.
pub(super) fn is_in_place(name: OperatorName<'_>) -> bool {
    let operation = name.operation();
    if operation.ends_with("__") { IN_PLACE.contains(&operation) } else { operation.ends_with('_') }
}
