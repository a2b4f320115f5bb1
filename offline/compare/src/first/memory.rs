//! What is remembered of parameters from step to step, for optimizers that were not captured: an adaptive one makes a full update of
//! a gradient that is rounding alone.

use std::collections::{HashMap, HashSet};

use trainmon_capture_files::{Section, TensorFacts};

use trainmon_noise::{Moved, may_hold_keys};

use super::finding::Compared;
use super::magnitude::PRODUCTS;
use crate::deviation::What;
use crate::evaluation::Sides;
use crate::fingerprint::Fingerprint;
use crate::input::Capture;
use crate::item::{Address, Item};
use crate::matching::Alignment;
use crate::name::{Direction, OperatorName};
use crate::rounding::unit_roundoff;

/// A parameter: its module without the number of a call, and its name there.
pub(super) type Key = (Box<str>, Box<str>);

/// Statistics made in another order are apart by no more units of round-off than that.
const LAST_BITS: f64 = 4.0;

/// Functions whose inputs are three projections, of which the key's bias changes nothing.
pub(super) const ATTENTIONS: [&str; 5] = [
    "scaled_dot_product_attention",
    "softmax",
    "multi_head_attention_forward",
    "flash_attn_func",
    "flash_attn_varlen_func",
];

/// Parameters by name, from step to step.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    known: HashMap<Key, Moved>,
    /// Whose gradient was rounding alone in some step.
    residues: HashSet<Key>,
    /// How far gradients were apart at most, of all steps.
    gradients: HashMap<Key, f64>,
    /// By what a parameter of this step is known where an operator uses it.
    pub(super) names: HashMap<Fingerprint, Key>,
    /// The same of the golden's, whose own may be another.
    golden: HashMap<Fingerprint, Key>,
    /// The same of what an update has made of parameters so far, in place.
    changed: HashMap<Fingerprint, Key>,
    /// Modules whose bias the keys of an attention have, all of it or a part.
    keys: HashSet<Box<str>>,
    /// Biases of this step that are apart by updates made of rounding. What they are added to is apart by as much, until something takes
    /// the mean away again.
    pub(super) shifts: Vec<Shift>,
    /// By the module around: how far results of this step may be apart in single elements.
    unseen: Vec<(Box<str>, f64)>,
}

/// A bias that is apart by updates made of rounding.
#[derive(Clone, Debug)]
pub(super) struct Shift {
    /// The module around the bias' own.
    pub(super) parent: Box<str>,
    pub(super) elements: u64,
    /// By how much at most.
    pub(super) by: f64,
    /// Whether no softmax has taken it away yet, as far as the module around it has run.
    pub(super) is_open: bool,
}

impl Parameters {
    /// Takes in a step's parameters as it begins with them.
    pub(super) fn step(&mut self, target: &Capture, golden: &Capture, aligned: &Alignment) {
        self.names.clear();
        self.golden.clear();
        self.changed.clear();
        self.shifts.clear();
        self.unseen.clear();
        self.keys.extend(keys(target));
        let mut seen = HashSet::new();
        for (one, other) in aligned.operators.iter().filter_map(|&(one, other)| one.zip(other)) {
            let operator = &target.document.operators[one as usize];
            let Some(name) = OperatorName::parse(&operator.name) else { continue };
            for value in operator.values.iter().filter(|value| value.section == Section::Parameter) {
                let twin = golden.counterpart(other, &value.place).map(|at| golden.at(at));
                let item = Item { operator, value };
                let (Some(tensor), Some(twin)) = (item.tensor(), twin.and_then(|twin| twin.tensor())) else { continue };
                let Some(key) = key(name.callee, &value.place) else { continue };
                self.names.insert(Fingerprint::of(tensor), key.clone());
                self.golden.insert(Fingerprint::of(twin), key.clone());
                if seen.insert(key.clone()) {
                    self.update(key, tensor, twin);
                }
            }
        }
    }

    fn update(&mut self, key: Key, tensor: &TensorFacts, twin: &TensorFacts) {
        let (Some(one), Some(other)) = (numbers(tensor), numbers(twin)) else { return };
        let numbers = [one, other];
        self.known.entry(key).and_modify(|known| known.step(numbers)).or_insert_with(|| Moved::begin(numbers));
    }

    /// Notes that a call of an update changes a tensor in place: what was a parameter stays that one.
    pub(super) fn note_change(&mut self, before: &TensorFacts, after: &TensorFacts) {
        if let Some(key) = self.name(before).cloned() {
            self.changed.insert(Fingerprint::of(after), key);
        }
    }

    /// Whether a tensor of the golden is the same parameter, as far as it is known for one.
    pub(super) fn is_golden(&self, key: &Key, twin: &TensorFacts) -> bool {
        self.golden.get(&Fingerprint::of(twin)).is_none_or(|other| other == key)
    }

    /// The parameter that a tensor is, as the step begins or as an update has changed it.
    pub(super) fn name(&self, tensor: &TensorFacts) -> Option<&Key> {
        let looks = Fingerprint::of(tensor);
        self.names.get(&looks).or_else(|| self.changed.get(&looks))
    }

    /// By what parameters of this step are known where an operator uses them, in the target and in the golden.
    pub(super) fn both(&self) -> [&HashMap<Fingerprint, Key>; 2] {
        [&self.names, &self.golden]
    }

    /// Whether a parameter's gradient was rounding alone: so is its update.
    pub(super) fn is_rounding(&self, key: &Key) -> bool {
        self.residues.contains(key)
    }

    /// Notes a gradient that is all rounding.
    pub(super) fn note_residue(&mut self, name: OperatorName<'_>, place: &str) {
        self.residues.extend(key(name.callee, place));
    }

    /// Notes how far a gradient was apart.
    pub(super) fn note_gradient(&mut self, name: OperatorName<'_>, place: &str, deviation: f64) {
        let Some(key) = key(name.callee, place).filter(|_| deviation.is_finite()) else { return };
        let known = self.gradients.entry(key).or_default();
        *known = known.max(deviation);
    }

    /// Notes a bias that is apart by updates made of rounding.
    pub(super) fn note_shift(&mut self, input: &Compared<'_>) {
        let Some(tensor) = input.item.tensor() else { return };
        let Some(key) = self.names.get(&Fingerprint::of(tensor)) else { return };
        if let (Some(known), Some(1)) = (self.known.get(key), tensor.sizes().map(|sizes| sizes.len())) {
            let elements = tensor.elements().unwrap_or(0);
            let parent = around(&key.0).into();
            self.shifts.push(Shift { parent, elements, by: known.reach(), is_open: true });
        }
    }

    /// A softmax ran in a module: what a key's bias adds to scores is gone behind it.
    pub(super) fn close_shifts(&mut self, module: &str) {
        for shift in self.shifts.iter_mut().filter(|shift| is_inside(module, &shift.parent)) {
            shift.is_open = false;
        }
    }

    /// Whether what a parameter is apart may be updates made of rounding.
    pub(super) fn explains(&self, key: &Key) -> bool {
        let is_residue = self.residues.contains(key) || self.is_bias_of_keys(key);
        is_residue && self.known.get(key).is_some_and(Moved::explains)
    }

    /// Whether a parameter is apart by what its gradients were, as a part of what they moved it.
    pub(super) fn follows_gradients(&self, key: &Key, count: f64) -> bool {
        let known = self.known.get(key).zip(self.gradients.get(key));
        known.is_some_and(|(known, &gradient)| known.follows(gradient, count))
    }

    /// By how much a single element of a parameter of `count` elements may be apart, if the means are apart by that element alone; by no
    /// more than updates moved it on both sides.
    pub(super) fn single_element(&self, key: &Key, count: f64) -> f64 {
        self.known.get(key).map_or(0.0, |known| known.single_element(count))
    }

    /// Whether few of many elements of a parameter of `count` elements, moved by an update in the other direction, make its mean so.
    pub(super) fn is_few_elements(&self, key: &Key, count: f64) -> bool {
        let gradient = self.gradients.get(key).copied();
        self.known.get(key).is_some_and(|known| known.is_few_elements(count, gradient))
    }

    /// Notes by how much of its size a result may be apart in single elements, since parameters of a module are; the statistics of the
    /// result need not show it, and those of what the module around makes of it may.
    pub(super) fn note_unseen(&mut self, module: &str, apart: f64) {
        if apart > 0.0 && apart.is_finite() {
            self.unseen.push((around(module).into(), apart));
        }
    }

    /// How far what an operator in a module makes of such results may be apart.
    pub(super) fn unseen(&self, module: &str) -> f64 {
        let of_module = self.unseen.iter().filter(|(around, _)| !around.is_empty() && **around == *module);
        of_module.map(|(_, apart)| *apart).fold(0.0, f64::max)
    }

    /// Whether it is the bias of a projection that gives an attention its keys: it changes nothing, and a fused one in part.
    fn is_bias_of_keys(&self, key: &Key) -> bool {
        // Where operators were recorded what a projection is for is known: its shape alone says less.
        let (module, name) = key;
        (&**name == "bias" && self.keys.contains(module)) || may_hold_keys(&format!("{module}.{name}"), 0.0, None)
    }
}

/// What ran so far in a module.
#[derive(Default)]
struct Before<'c> {
    /// Its children, and what they gave.
    children: Vec<(&'c str, Vec<Fingerprint>)>,
    /// Whether a product was made since.
    has_product: bool,
}

/// Modules that an attention may have its keys of: those beside it that ran before, unless what they give is known to be its queries or
/// values. Of an attention written out a softmax of products is known.
fn keys(capture: &Capture) -> HashSet<Box<str>> {
    let mut keys = HashSet::new();
    let mut before: HashMap<&str, Before<'_>> = HashMap::new();
    for operator in &capture.document.operators {
        let Some(name) = OperatorName::parse(&operator.name).filter(|name| name.direction == Direction::Forward) else {
            continue;
        };
        let looks = |section: Section| {
            let values = operator.values.iter().filter(move |value| value.section == section);
            values.filter_map(|value| Item { operator, value }.tensor()).map(Fingerprint::of).collect::<Vec<_>>()
        };
        if !name.is_operator {
            let module = path(name.callee);
            before.entry(around(module)).or_default().children.push((module, looks(Section::Output)));
            continue;
        }
        let parent = capture.parent(&operator.name).and_then(|parent| parent.name.as_deref());
        let Some(parent) = parent.and_then(OperatorName::parse) else { continue };
        let Some(before) = before.get_mut(path(parent.callee)) else { continue };
        before.has_product |= PRODUCTS.contains(&name.function());
        if ATTENTIONS.contains(&name.function()) && (name.function() != "softmax" || before.has_product) {
            let inputs = looks(Section::Input);
            let is_other = |given: &[Fingerprint]| {
                let is_at =
                    |at: usize| name.function() != "softmax" && inputs.get(at).is_some_and(|it| given.contains(it));
                (is_at(0) || is_at(2)) && !is_at(1)
            };
            let children = before.children.drain(..);
            keys.extend(children.filter(|(_, given)| !is_other(given)).map(|(module, _)| module.into()));
            before.has_product = false;
        }
    }
    keys
}

/// Whether a module is another one, or inside of it.
pub(super) fn is_inside(module: &str, other: &str) -> bool {
    module.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// `Module.blocks.0.attn` of `Module.blocks.0.attn.qkv`.
pub(super) fn around(module: &str) -> &str {
    module.rsplit_once('.').map_or("", |(around, _)| around)
}

/// Tensors that nobody computed, parameters and what the first operator is given: all of them, and those that are apart in no more than
/// their last bits.
pub(super) fn uncomputed(sides: Sides<'_>, aligned: &Alignment) -> [HashSet<Fingerprint>; 2] {
    let unit = LAST_BITS * unit_roundoff("float32").unwrap_or_default();
    let mut found: [HashSet<Fingerprint>; 2] = Default::default();
    let mut is_first = true;
    for (one, other) in aligned.operators.iter().filter_map(|&(one, other)| one.zip(other)) {
        for (value, at) in sides.target.document.operators[one as usize].values.iter().zip(0..) {
            let is_uncomputed = value.section == Section::Parameter || (is_first && value.section == Section::Input);
            let Some(twin) = sides.golden.counterpart(other, &value.place).filter(|_| is_uncomputed) else { continue };
            let Some(tensor) = value.tensor() else { continue };
            let apart = sides.deviation(Address { operator: one, value: at }, twin);
            found[0].insert(Fingerprint::of(tensor));
            if apart.what == What::Numbers && apart.relative <= unit {
                found[1].insert(Fingerprint::of(tensor));
            }
        }
        is_first = false;
    }
    found
}

/// `Module.blocks.0.attn.qkv.Linear` is `Module.blocks.0.attn.qkv`.
pub(super) fn path(callee: &str) -> &str {
    callee.rsplit_once('.').map_or(callee, |(path, _)| path)
}

pub(super) fn key(callee: &str, place: &str) -> Option<Key> {
    Some((path(callee).into(), place.rsplit('.').next()?.into()))
}

pub(super) fn numbers(tensor: &TensorFacts) -> Option<[f64; 4]> {
    let [max, min, mean, norm] = [0, 1, 2, 3].map(|at: usize| tensor.statistics[at].number());
    Some([max?, min?, mean?, norm?]).filter(|numbers| numbers.iter().all(|number| number.is_finite()))
}
