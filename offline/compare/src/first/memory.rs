//! What is remembered of parameters from step to step, for optimizers that were not captured: an adaptive one makes a full update of
//! a gradient that is rounding alone.

use std::collections::{HashMap, HashSet};

use trainmon_dump::capture::{Leaf, Section, TensorFacts};

use super::finding::Compared;
use super::fingerprint::Fingerprint;
use crate::deviation::What;
use crate::evaluation::Sides;
use crate::input::Capture;
use crate::item::{Address, Item};
use crate::matching::Alignment;
use crate::name::OperatorName;
use crate::rounding::unit_roundoff;

/// A parameter: its module without the number of a call, and its name there.
pub(super) type Key = (Box<str>, Box<str>);

/// Runs may be apart by what an update moved a parameter in both, if it was rounding alone; and by as much again for each step.
const SIDES: f64 = 2.0;

/// So many elements of any gradient may be so close to zero that rounding decides their sign.
const ELEMENTS_NEAR_ZERO: f64 = 8.0;

/// Statistics made in another order are apart by no more units of round-off than that.
const LAST_BITS: f64 = 4.0;

/// Functions whose inputs are three projections, of which the key's bias changes nothing.
const ATTENTIONS: [&str; 5] = [
    "scaled_dot_product_attention",
    "softmax",
    "multi_head_attention_forward",
    "flash_attn_func",
    "flash_attn_varlen_func",
];

/// What is known of one parameter: max, min, mean and norm on both sides.
#[derive(Clone, Copy, Debug)]
struct Known {
    numbers: [[f64; 4]; 2],
    /// By how much an update moved it at most, of all steps so far; of max, min and mean.
    moved: f64,
}

/// Parameters by name, from step to step.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    known: HashMap<Key, Known>,
    /// Whose gradient was rounding alone in some step.
    residues: HashSet<Key>,
    /// By what a parameter of this step is known where an operator uses it.
    pub(super) names: HashMap<Fingerprint, Key>,
    /// Modules that attend, or whose child does.
    attending: HashSet<Box<str>>,
    /// Biases of this step that are apart by updates made of rounding: how many elements, and by how much at most. What they are added
    /// to is apart by as much, until something takes the mean away again.
    pub(super) shifts: Vec<(u64, f64)>,
}

impl Parameters {
    /// Takes in a step's parameters as it begins with them.
    pub(super) fn step(&mut self, target: &Capture, golden: &Capture, aligned: &Alignment) {
        self.names.clear();
        self.shifts.clear();
        let mut seen = HashSet::new();
        for (one, other) in aligned.operators.iter().filter_map(|&(one, other)| one.zip(other)) {
            let operator = &target.document.operators[one as usize];
            let Some(name) = OperatorName::parse(&operator.name) else { continue };
            if name.is_operator && ATTENTIONS.contains(&name.function()) {
                let parent = target.parent(&operator.name).and_then(|parent| parent.name.as_deref());
                self.attending.extend(parent.and_then(OperatorName::parse).map(|parent| path(parent.callee).into()));
            }
            for value in operator.values.iter().filter(|value| value.section == Section::Parameter) {
                let twin = golden.counterpart(other, &value.place).map(|at| golden.at(at));
                let item = Item { operator, value };
                let (Some(tensor), Some(twin)) = (item.tensor(), twin.and_then(|twin| twin.tensor())) else { continue };
                let Some(key) = key(name.callee, &value.place) else { continue };
                self.names.insert(Fingerprint::of(tensor), key.clone());
                if seen.insert(key.clone()) {
                    self.update(key, tensor, twin);
                }
            }
        }
    }

    fn update(&mut self, key: Key, tensor: &TensorFacts, twin: &TensorFacts) {
        let (Some(one), Some(other)) = (numbers(tensor), numbers(twin)) else { return };
        let numbers = [one, other];
        let moved = self.known.get(&key).map_or(0.0, |known| {
            let pairs = known.numbers.iter().zip(&numbers).flat_map(|(old, new)| old.iter().zip(new).take(3));
            pairs.map(|(old, new)| (old - new).abs()).fold(0.0, f64::max) + known.moved
        });
        self.known.insert(key, Known { numbers, moved });
    }

    /// Notes a gradient that is all rounding.
    pub(super) fn note_residue(&mut self, name: OperatorName<'_>, place: &str) {
        self.residues.extend(key(name.callee, place));
    }

    /// Notes a bias that is apart by updates made of rounding.
    pub(super) fn note_shift(&mut self, input: &Compared<'_>) {
        let Some(tensor) = input.item.tensor() else { return };
        let known = self.names.get(&Fingerprint::of(tensor)).and_then(|key| self.known.get(key));
        if let (Some(known), Some(1)) = (known, tensor.sizes().map(|sizes| sizes.len())) {
            self.shifts.push((tensor.elements().unwrap_or(0), SIDES * known.moved));
        }
    }

    /// Whether what a parameter is apart may be updates made of rounding. `is_part`: of a few of its elements at least.
    pub(super) fn explains(&self, key: &Key) -> bool {
        let Some(known) = self.known.get(key).filter(|known| known.moved > 0.0) else { return false };
        let [one, other] = known.numbers;
        let apart = |at: usize| (one[at] - other[at]).abs();
        if self.residues.contains(key) || self.is_attentions_bias(key) {
            return (0..3).all(|at| apart(at) <= SIDES * known.moved);
        }
        false
    }

    /// Whether few elements of a parameter of `count` elements, moved by an update in the other direction, make its mean so.
    pub(super) fn is_few_elements(&self, key: &Key, count: f64) -> bool {
        let Some(known) = self.known.get(key).filter(|known| known.moved > 0.0) else { return false };
        let [one, other] = known.numbers;
        let apart = |at: usize| (one[at] - other[at]).abs();
        let few = ELEMENTS_NEAR_ZERO * SIDES * known.moved;
        apart(2) <= few / count
            && apart(3) <= few / count.sqrt()
            && (0..2).all(|at| apart(at) <= known.moved / count.sqrt())
    }

    /// Whether it is the bias of a projection in a module that attends: a part of it may be the keys'.
    fn is_attentions_bias(&self, (module, name): &Key) -> bool {
        let parent = module.rsplit_once('.').map_or("", |(parent, _)| parent);
        (&**name == "bias" && self.attending.contains(parent)) || &**name == "in_proj_bias"
    }
}

/// How many tensors that nobody computed are apart in no more than their last bits: parameters, and what the first operator is given.
pub(super) fn last_bits(sides: Sides<'_>, aligned: &Alignment) -> usize {
    let unit = LAST_BITS * unit_roundoff("float32").unwrap_or_default();
    let mut found: HashSet<Fingerprint> = HashSet::new();
    let mut is_first = true;
    for (one, other) in aligned.operators.iter().filter_map(|&(one, other)| one.zip(other)) {
        for (value, at) in sides.target.document.operators[one as usize].values.iter().zip(0..) {
            let is_uncomputed = value.section == Section::Parameter || (is_first && value.section == Section::Input);
            let Some(twin) = sides.golden.counterpart(other, &value.place).filter(|_| is_uncomputed) else { continue };
            let apart = sides.deviation(Address { operator: one, value: at }, twin);
            if let Leaf::Tensor(tensor) = &value.leaf
                && apart.what == What::Numbers
                && apart.relative <= unit
            {
                found.insert(Fingerprint::of(tensor));
            }
        }
        is_first = false;
    }
    found.len()
}

/// `Module.blocks.0.attn.qkv.Linear` is `Module.blocks.0.attn.qkv`.
fn path(callee: &str) -> &str {
    callee.rsplit_once('.').map_or(callee, |(path, _)| path)
}

pub(super) fn key(callee: &str, place: &str) -> Option<Key> {
    Some((path(callee).into(), place.rsplit('.').next()?.into()))
}

pub(super) fn numbers(tensor: &TensorFacts) -> Option<[f64; 4]> {
    let [max, min, mean, norm] = [0, 1, 2, 3].map(|at: usize| tensor.statistics[at].number());
    Some([max?, min?, mean?, norm?]).filter(|numbers| numbers.iter().all(|number| number.is_finite()))
}
