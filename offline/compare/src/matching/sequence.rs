//! Aligns operators in execution order.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use similar::DiffOp;
use trainmon_capture_files::{Leaf, Operator, Section, Value};

use crate::input::Capture;
use crate::name::{Direction, Hashes, OperatorName};
use crate::script::{Numbers, script};

use super::exact::{pair_aligned, plain_keys};
use super::listed::{one_is_listed, unlisted};
use super::pair::{Aligned, How, Pair};
use super::unlike::are_unlike;
use super::wrapped::{one_is_wrapped, unwrapped};

/// Aligns the operators of two captures.
///
/// If both ran the same calls, they pair by name. Otherwise they pair by their place in the sequence of calls (a longest common
/// subsequence of function, module and shapes), so that one additional call does not shift all later ones. Nearly linear time
/// if few calls differ.
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

/// The aligned operators of two captures, and how they were aligned.
pub(super) struct Sequence {
    pub(super) operators: Vec<Aligned>,
    /// Whether both ran the same calls, so that they pair by name.
    is_by_name: bool,
    /// How modules with other names were paired: one side is a list of one model, or has wrappers.
    other_names: Option<How>,
}

impl Sequence {
    /// Pairs values of the same place in aligned operators. The target's values come first in their order, then those of the
    /// baseline only.
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
    let mut numbers: [Numbers<String>; LEVELS] = std::array::from_fn(|_| Numbers::new());
    let mut keys = |capture: &Capture, is_listed: bool| {
        let mut levels: [Vec<u32>; LEVELS] = Default::default();
        for operator in &capture.document.operators {
            let Called { function, place, shapes } = Called::of(operator, capture, (is_listed, is_wrapped));
            let texts =
                [format!("{function}{place}{shapes}"), format!("{function}{place}"), format!("{function}{shapes}")];
            for ((level, numbers), text) in levels.iter_mut().zip(&mut numbers).zip(texts) {
                level.push(numbers.number(text));
            }
        }
        levels
    };
    let sides = [keys(target, are_listed[0]), keys(golden, are_listed[1])];
    let mut aligned = Vec::new();
    side_by_side(&sides, 0, [0..sides[0][0].len(), 0..sides[1][0].len()], &mut aligned);
    pair_moved(&mut aligned, [target, golden], [&sides[0][0], &sides[1][0]]);
    let are_alike = |&(one, other): &(u32, u32)| {
        !are_unlike(&target.document.operators[one as usize], &golden.document.operators[other as usize])
    };
    let pairs = aligned.iter().filter_map(|&(one, other)| one.zip(other));
    let mut twins = pairs.filter(are_alike).collect();
    follow_forwards(&mut twins, target, golden);
    where_they_ran(&twins, target.document.operators.len(), golden.document.operators.len())
}

/// The levels of equality of operators: function, module and shapes; function and module; function alone.
const LEVELS: usize = 3;

/// Aligns a range of each side's operators: by the longest common sequence, and between its elements by the next level.
fn side_by_side(sides: &[[Vec<u32>; LEVELS]; 2], level: usize, ranges: [Range<usize>; 2], aligned: &mut Vec<Aligned>) {
    let [target, golden] = [0, 1].map(|side| sides[side].get(level).map(|keys| &keys[ranges[side].clone()]));
    let (Some(target), Some(golden)) = (target, golden) else {
        let [target, golden] = ranges;
        aligned.extend(golden.map(|golden| (None, Some(golden as u32))));
        aligned.extend(target.map(|target| (Some(target as u32), None)));
        return;
    };
    for step in script(target, golden) {
        let inside = |range: Range<usize>, first: usize| range.start + first..range.end + first;
        let [one, other] = [inside(step.old_range(), ranges[0].start), inside(step.new_range(), ranges[1].start)];
        if matches!(step, DiffOp::Equal { .. }) {
            aligned.extend(one.zip(other).map(|(one, other)| (Some(one as u32), Some(other as u32))));
        } else {
            side_by_side(sides, level + 1, [one, other], aligned);
        }
    }
}

/// The operators in the target's order with their counterparts; operators of the baseline only follow those that ran before
/// them there.
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

/// Pairs remaining operators of one name that ran at another time: the order of gradients depends on threads. For calls of
/// functions, module and shapes must agree too (`keys`): names have call numbers, which one additional call would shift.
fn pair_moved(aligned: &mut Vec<Aligned>, [target, golden]: [&Capture; 2], keys: [&[u32]; 2]) {
    let is_counted = |name: &str| OperatorName::parse(name).is_some_and(|name| name.is_operator);
    let left = aligned.iter().filter_map(|pair| if let (None, Some(golden)) = pair { Some(*golden) } else { None });
    let mut left: HashMap<&str, u32> =
        left.map(|index| (&*golden.document.operators[index as usize].name, index)).collect();
    let mut taken = HashSet::new();
    for pair in aligned.iter_mut() {
        if let (Some(index), None) = *pair
            && let name = &*target.document.operators[index as usize].name
            && let Some(&found) = left.get(name)
            && (!is_counted(name) || keys[0][index as usize] == keys[1][found as usize])
        {
            left.remove(name);
            pair.1 = Some(found);
            taken.insert(found);
        }
    }
    aligned.retain(|pair| !matches!(pair, (None, Some(golden)) if taken.contains(golden)));
}

/// Pairs the backward of a function's call like its forward, if that was captured: it has the same number.
fn follow_forwards(twins: &mut HashMap<u32, u32>, target: &Capture, golden: &Capture) {
    let places = |capture: &'_ Capture| -> HashMap<Box<str>, u32, Hashes> {
        capture.document.operators.iter().map(|operator| operator.name.clone()).zip(0..).collect()
    };
    let (of_target, of_golden) = (places(target), places(golden));
    let mut followed: Vec<(u32, Option<u32>)> = Vec::new();
    for (operator, index) in target.document.operators.iter().zip(0..) {
        let name = OperatorName::parse(&operator.name);
        let Some(name) = name.filter(|name| name.is_operator && name.direction == Direction::Backward) else {
            continue;
        };
        let call = format!("{}.{}.", name.callee, name.call);
        let Some(forward) = of_target.get(&*format!("{call}forward")) else { continue };
        let twin = twins.get(forward).and_then(|forward| {
            let forward = golden.document.operators[*forward as usize].name.strip_suffix("forward")?;
            of_golden.get(&*format!("{forward}{}", operator.name.strip_prefix(&call)?)).copied()
        });
        followed.push((index, twin));
    }
    let taken: HashSet<u32> = followed.iter().filter_map(|(_, twin)| *twin).collect();
    twins.retain(|_, golden| !taken.contains(golden));
    for (index, twin) in followed {
        twins.remove(&index);
        twins.extend(twin.map(|twin| (index, twin)));
    }
}

/// The function, module and shapes of a call.
struct Called {
    function: String,
    place: String,
    shapes: String,
}

impl Called {
    fn of(operator: &Operator, capture: &Capture, (is_listed, is_wrapped): (bool, bool)) -> Self {
        let plain = |name: &str| {
            let name = if is_wrapped { unwrapped(name) } else { name.into() };
            unlisted(&name, is_listed).into_owned()
        };
        let Some(name) = OperatorName::parse(&operator.name) else {
            return Self { function: operator.name.to_string(), place: String::new(), shapes: String::new() };
        };
        let parent = capture.parent(&operator.name).and_then(|parent| parent.name.as_deref());
        let parent = parent.map(|parent| OperatorName::parse(parent).map_or(parent, |name| name.callee));
        let inputs = operator.values.iter().filter(|value| value.section == Section::Input);
        let shape = |value: &Value| match &value.leaf {
            Leaf::Tensor(tensor) => Some(crate::python::text(&tensor.shape)),
            _ => None,
        };
        Self {
            function: format!("{}:{:?}", plain(name.callee), name.direction),
            place: parent.map_or_else(String::new, |parent| format!("@{}", plain(parent))),
            shapes: inputs.filter_map(shape).collect(),
        }
    }
}
