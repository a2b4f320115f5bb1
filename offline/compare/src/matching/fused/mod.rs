//! A fused projection and its parts: `qkv_proj` and `q_proj`, `k_proj`, `v_proj`; `gate_up_proj` and `gate_proj`, `up_proj`.
//!
//! If one side has the fused module and the other all its parts below the same parent, the parts are joined in the form of the
//! fused module and replaced by it. The same applies to the operators inside of them. Max, min, mean and norm of a
//! concatenation follow from those of its parts; tensors are read and joined when they are compared (see [`Joined`]). A
//! checksum follows only from the bytes: it is omitted, and the value is not judged by it.
//!
//! [`Joined`]: crate::joined::Joined

mod facts;
mod layout;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use trainmon_capture_files::Operator;
use trainmon_tensor_files::StoredTensor;

use self::facts::{FusedOperator, is_permuted, layout_tensor, put_together};
use self::layout::layout;
use super::family::common_callee;
use super::listed::{one_is_listed, relisted};
use crate::input::Capture;
use crate::item::Item;
use crate::joined::{JoinedOperator, Layout};
use crate::name::{Direction, OperatorName};
use crate::tensors::{read, read_file};

/// Names of fused modules and of their parts.
const FUSED: [(&[&str], &[&[&str]]); 2] = [
    (
        &["qkv_proj", "qkv", "query_key_value", "linear_qkv", "c_attn", "Wqkv"],
        &[&["q_proj", "k_proj", "v_proj"], &["query", "key", "value"], &["q", "k", "v"], &["wq", "wk", "wv"]],
    ),
    (&["gate_up_proj", "linear_fc1", "dense_h_to_4h", "w13"], &[&["gate_proj", "up_proj"], &["w1", "w3"]]),
];

/// Joins the parts of one side that the other has fused, in both directions. The parts are removed; [`Capture::joined`] lists
/// the results.
pub(crate) fn fuse(target: &mut Capture, golden: &mut Capture) {
    fuse_parts(target, golden);
    fuse_parts(golden, target);
}

/// A module's call without its class: path, direction, number.
type Call<'n> = (&'n str, Direction, u32);

/// The call of a module's name. `is_listed`: the path starts with the index of a list of one model, which does not count.
fn call(name: &str, is_listed: bool) -> Option<Call<'_>> {
    let name = OperatorName::parse(name).filter(|name| !name.is_operator)?;
    let (_, path) = name.callee.split_once('.').filter(|(family, _)| matches!(*family, "Module" | "Cell"))?;
    let (path, _) = path.rsplit_once('.')?;
    Some((path.strip_prefix("0.").filter(|_| is_listed).unwrap_or(path), name.direction, name.call))
}

/// A group to join: an operator of the fused side, the indexes of its parts on the split side, and the fused module's path.
struct FusedGroup<'c> {
    whole: &'c Operator,
    parts: Vec<usize>,
    path: &'c str,
}

/// A joined operator and the names of its parts.
struct Made {
    operator: Operator,
    joined: JoinedOperator,
    parts: Vec<Box<str>>,
}

fn fuse_parts(split: &mut Capture, fused: &Capture) {
    let are_listed = one_is_listed(split, fused);
    let mut found = modules(split, fused, are_listed);
    found.extend(operators_within(&found, split, fused));
    let mut layouts: HashMap<&str, Layout> = HashMap::new();
    let mut made: HashMap<usize, Made> = HashMap::new();
    let mut gone: HashSet<usize> = HashSet::new();
    for found in &found {
        // It completes with the last of its parts.
        let Some(&last) = found.parts.iter().max() else { continue };
        let mut whole = make(found, split, fused, &mut layouts);
        whole.operator.name = relisted(&whole.operator.name, are_listed).into();
        made.insert(last, whole);
        gone.extend(&found.parts);
    }
    let before = std::mem::take(&mut split.document.operators);
    for (index, operator) in before.into_iter().enumerate() {
        if let Some(Made { operator, joined, parts }) = made.remove(&index) {
            let names = parts.iter().filter(|name| **name != operator.name);
            split.joined.add(&operator.name, joined, names.filter_map(|name| OperatorName::parse(name)));
            split.document.operators.push(operator);
        } else if !gone.contains(&index) {
            split.document.operators.push(operator);
        }
    }
}

/// Fused modules whose parts the other side has.
fn modules<'c>(split: &Capture, fused: &'c Capture, are_listed: [bool; 2]) -> Vec<FusedGroup<'c>> {
    let operators = &split.document.operators;
    let places: HashMap<Call<'_>, usize> = operators
        .iter()
        .enumerate()
        .filter_map(|(index, operator)| Some((call(&operator.name, are_listed[0])?, index)))
        .collect();
    let found = |whole: &'c Operator| {
        let (path, direction, number) = call(&whole.name, are_listed[1])?;
        let (parent, last) = path.rsplit_once('.').map_or(("", path), |(parent, last)| (parent, last));
        let mut groups = FUSED.iter().filter(|(names, _)| names.contains(&last)).flat_map(|(_, groups)| *groups);
        if places.contains_key(&(path, direction, number)) {
            return None;
        }
        let parts = groups.find_map(|group| {
            let path = |part: &&str| if parent.is_empty() { (*part).to_owned() } else { format!("{parent}.{part}") };
            let place = |part: &&str| places.get(&(path(part).as_str(), direction, number)).copied();
            group.iter().map(place).collect::<Option<Vec<usize>>>()
        })?;
        Some(FusedGroup { whole, parts, path })
    };
    fused.document.operators.iter().filter_map(found).collect()
}

/// Operators that ran in fused modules and equally often in each of their parts, with their backward calls.
fn operators_within<'c>(modules: &[FusedGroup<'c>], split: &Capture, fused: &'c Capture) -> Vec<FusedGroup<'c>> {
    let forwards: Vec<&FusedGroup<'c>> = modules
        .iter()
        .filter(|found| matches!(call(&found.whole.name, false), Some((_, Direction::Forward, _))))
        .collect();
    if forwards.is_empty() {
        return Vec::new();
    }
    let (wholes, parts) = (Children::of(fused, split), Children::of(split, fused));
    let mut within = Vec::new();
    for module in forwards {
        for (callee, number, forward) in wholes.below(&module.whole.name) {
            let twins =
                module.parts.iter().map(|&part| parts.nth(&split.document.operators[part].name, callee, number));
            let Some(twins) = twins.collect::<Option<Vec<OperatorName<'_>>>>() else { continue };
            for direction in ["forward", "backward"] {
                let index = |of: &Children<'_>, name: OperatorName<'_>| {
                    of.indices.get(format!("{}.{}.{direction}", name.callee, name.call).as_str()).copied()
                };
                let whole = index(&wholes, forward).map(|index| &fused.document.operators[index]);
                let parts: Option<Vec<usize>> = twins.iter().map(|twin| index(&parts, *twin)).collect();
                if let (Some(whole), Some(parts)) = (whole, parts) {
                    within.push(FusedGroup { whole, parts, path: module.path });
                }
            }
        }
    }
    within
}

/// A callee in torch's spelling, the number of earlier calls of it in the module, and the call.
type Child<'c> = (Cow<'c, str>, usize, OperatorName<'c>);

/// The operators of each module, from `construct.json`.
struct Children<'c> {
    /// By module.
    of: HashMap<&'c str, Vec<Child<'c>>>,
    indices: HashMap<&'c str, usize>,
}

impl<'c> Children<'c> {
    fn of(capture: &'c Capture, other: &Capture) -> Self {
        let mut children = Self { of: HashMap::new(), indices: HashMap::new() };
        for (index, operator) in capture.document.operators.iter().enumerate() {
            children.indices.insert(&operator.name, index);
            let Some(name) = OperatorName::parse(&operator.name) else { continue };
            let parent = capture.construct.parent(&operator.name).and_then(|parent| parent.name.as_deref());
            if let Some(parent) = parent.filter(|_| name.is_operator && name.direction == Direction::Forward) {
                let of = children.of.entry(parent).or_default();
                let callee = common_callee(name.callee, capture.document.framework, other.document.framework);
                let before = of.iter().filter(|(other, ..)| *other == callee).count();
                of.push((callee, before, name));
            }
        }
        children
    }

    fn below(&self, module: &str) -> impl Iterator<Item = (&str, usize, OperatorName<'c>)> {
        self.of.get(module).into_iter().flatten().map(|(callee, before, name)| (&**callee, *before, *name))
    }

    fn nth(&self, module: &str, callee: &str, number: usize) -> Option<OperatorName<'c>> {
        self.below(module).find(|(other, before, _)| (*other, *before) == (callee, number)).map(|(.., name)| name)
    }
}

fn make<'c>(found: &FusedGroup<'c>, split: &Capture, fused: &Capture, layouts: &mut HashMap<&'c str, Layout>) -> Made {
    let FusedGroup { whole, parts, path } = found;
    let parts: Vec<&Operator> = parts.iter().map(|&index| &split.document.operators[index]).collect();
    let direction = OperatorName::parse(&whole.name).map_or(Direction::Forward, |name| name.direction);
    let made = put_together(whole, &parts, direction);
    // Weights show the order: the first operators have them, and all others of the module follow.
    let known = layouts.get(path).copied().or_else(|| look(whole, &made, split, fused));
    if let Some(known) = known {
        layouts.insert(path, known);
    }
    let parent = fused.construct.parent(&whole.name).cloned();
    // A module takes the fused one's name; an operator keeps its first part's, because its number belongs to its own run.
    let name = |operator: &Operator| operator.name.clone();
    let first = parts.iter().min_by_key(|part| OperatorName::parse(&part.name).map(|name| name.call));
    let name = if call(&whole.name, false).is_some() { name(whole) } else { name(first.unwrap_or(whole)) };
    Made {
        operator: Operator { name, values: made.values },
        joined: JoinedOperator { parent, layout: known.unwrap_or(Layout::PLAIN), recipes: made.recipes },
        parts: parts.iter().map(|part| part.name.clone()).collect(),
    }
}

/// The order of the parts in the fused tensors, from the files of both sides; `None` if there are none, or they cannot be read.
fn look(operator: &Operator, made: &FusedOperator, split: &Capture, fused: &Capture) -> Option<Layout> {
    let (place, axis) = layout_tensor(operator, made)?;
    let value = operator.values.iter().find(|value| &*value.place == place)?;
    let whole = read(fused, Item { operator, value })?.ok()?;
    let files = &made.recipes.get(place)?.files;
    let parts: Option<Vec<StoredTensor>> = files.iter().map(|file| read_file(split, file).ok()).collect();
    Some(layout(&parts?, &whole, axis, is_permuted(operator, made, place)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::tests::{capture, names};
    use crate::matching::{How, Matching};

    #[test]
    fn parts_in_a_list_of_one_model_are_those_of_the_fused_module() {
        let parts = ["q", "k", "v"].map(|part| format!("Module.0.layer.{part}_proj.Linear.forward.0"));
        let listed = [&*parts[0], &*parts[1], &*parts[2], "Module.0.layer.o_proj.Linear.forward.0"];
        let plain = ["Module.layer.qkv_proj.Linear.forward.0", "Module.layer.o_proj.Linear.forward.0"];
        for is_turned in [false, true] {
            let (mut target, mut golden) = (capture(&listed, &[]), capture(&plain, &[]));
            if is_turned {
                std::mem::swap(&mut target, &mut golden);
            }
            fuse(&mut target, &mut golden);
            let paired = names(&target, &golden, &Matching::Name.pairs(&target, &golden, false));
            let hows: Vec<How> = paired.iter().map(|(.., how)| *how).collect();
            assert_eq!(hows, [How::Fused, How::Listed], "{paired:?}");
            assert!(paired.iter().all(|(one, other, _)| one.is_some() && other.is_some()), "{paired:?}");
        }
    }
}
