//! The state of parameters across steps, for optimizers that were not captured: an adaptive optimizer makes a full update of a
//! gradient that is only rounding.

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

/// The name of a parameter: its module without the call number, and its name there.
pub(super) type Key = (Box<str>, Box<str>);

/// The largest difference of statistics that were summed in another order, in units of round-off.
const LAST_BITS: f64 = 4.0;

/// Functions with three projections as inputs, of which the key's bias has no effect.
pub(super) const ATTENTIONS: [&str; 5] = [
    "scaled_dot_product_attention",
    "softmax",
    "multi_head_attention_forward",
    "flash_attn_func",
    "flash_attn_varlen_func",
];

/// Parameters by name, across steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    known: HashMap<Key, Moved>,
    /// Parameters whose gradient was only rounding in some step.
    residues: HashSet<Key>,
    /// The largest difference of each gradient so far.
    gradients: HashMap<Key, f64>,
    /// The parameters of this step by the fingerprint that operators see.
    pub(super) names: HashMap<Fingerprint, Key>,
    /// The same for the baseline, which may differ.
    golden: HashMap<Fingerprint, Key>,
    /// The same for parameters after in-place changes of an update.
    changed: HashMap<Fingerprint, Key>,
    /// Modules with a bias that belongs to attention keys, completely or in part.
    keys: HashSet<Box<str>>,
    /// Biases of this step that differ by updates made of rounding. Their sums differ by as much, until the mean is subtracted.
    pub(super) shifts: Vec<Shift>,
    /// By surrounding module: the possible difference of single elements of results in this step.
    unseen: Vec<(Box<str>, f64)>,
}

/// A bias that differs by updates made of rounding.
#[derive(Clone, Debug)]
pub(super) struct Shift {
    /// The module around the bias's own module.
    pub(super) parent: Box<str>,
    pub(super) elements: u64,
    /// The largest difference.
    pub(super) by: f64,
    /// Whether no softmax has removed it yet, as far as the surrounding module has run.
    pub(super) is_open: bool,
}

impl Parameters {
    /// Adds the parameters of a step.
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

    /// Records that an update changes a tensor in place: it stays the same parameter.
    pub(super) fn note_change(&mut self, before: &TensorFacts, after: &TensorFacts) {
        if let Some(key) = self.name(before).cloned() {
            self.changed.insert(Fingerprint::of(after), key);
        }
    }

    /// Whether a tensor of the baseline is the same parameter, if known.
    pub(super) fn is_golden(&self, key: &Key, twin: &TensorFacts) -> bool {
        self.golden.get(&Fingerprint::of(twin)).is_none_or(|other| other == key)
    }

    /// The parameter that a tensor is, at the start of the step or after an update changed it.
    pub(super) fn name(&self, tensor: &TensorFacts) -> Option<&Key> {
        let looks = Fingerprint::of(tensor);
        self.names.get(&looks).or_else(|| self.changed.get(&looks))
    }

    /// The parameters of this step by fingerprint, in the target and the baseline.
    pub(super) fn both(&self) -> [&HashMap<Fingerprint, Key>; 2] {
        [&self.names, &self.golden]
    }

    /// Whether a parameter's gradient was only rounding: so is its update.
    pub(super) fn is_rounding(&self, key: &Key) -> bool {
        self.residues.contains(key)
    }

    /// Records a gradient that is only rounding.
    pub(super) fn note_residue(&mut self, name: OperatorName<'_>, place: &str) {
        self.residues.extend(key(name.callee, place));
    }

    /// Records the difference of a gradient.
    pub(super) fn note_gradient(&mut self, name: OperatorName<'_>, place: &str, deviation: f64) {
        let Some(key) = key(name.callee, place).filter(|_| deviation.is_finite()) else { return };
        let known = self.gradients.entry(key).or_default();
        *known = known.max(deviation);
    }

    /// Records a bias that differs by updates made of rounding.
    pub(super) fn note_shift(&mut self, input: &Compared<'_>) {
        let Some(tensor) = input.item.tensor() else { return };
        let Some(key) = self.names.get(&Fingerprint::of(tensor)) else { return };
        if let (Some(known), Some(1)) = (self.known.get(key), tensor.sizes().map(|sizes| sizes.len())) {
            let elements = tensor.elements().unwrap_or(0);
            let parent = around(&key.0).into();
            self.shifts.push(Shift { parent, elements, by: known.reach(), is_open: true });
        }
    }

    /// Records a softmax in a module: it removes the effect of a key's bias on scores.
    pub(super) fn close_shifts(&mut self, module: &str) {
        for shift in self.shifts.iter_mut().filter(|shift| is_inside(module, &shift.parent)) {
            shift.is_open = false;
        }
    }

    /// Whether updates made of rounding may explain a parameter's difference.
    pub(super) fn explains(&self, key: &Key) -> bool {
        let is_residue = self.residues.contains(key) || self.is_bias_of_keys(key);
        is_residue && self.known.get(key).is_some_and(Moved::explains)
    }

    /// Whether a parameter differs as its gradients did, relative to its updates.
    pub(super) fn follows_gradients(&self, key: &Key, count: f64) -> bool {
        let known = self.known.get(key).zip(self.gradients.get(key));
        known.is_some_and(|(known, &gradient)| known.follows(gradient, count))
    }

    /// The possible difference of a single element of a parameter of `count` elements, if that element alone changes the mean;
    /// at most the updates of both sides.
    pub(super) fn single_element(&self, key: &Key, count: f64) -> f64 {
        self.known.get(key).map_or(0.0, |known| known.single_element(count))
    }

    /// Whether a few of the `count` elements of a parameter, moved by an update in the opposite direction, account for its
    /// mean.
    pub(super) fn is_few_elements(&self, key: &Key, count: f64) -> bool {
        let gradient = self.gradients.get(key).copied();
        self.known.get(key).is_some_and(|known| known.is_few_elements(count, gradient))
    }

    /// Records the relative difference that single elements of a result may have because of a module's parameters. The
    /// statistics of the result may not show it, but those of later results in the surrounding module may.
    pub(super) fn note_unseen(&mut self, module: &str, apart: f64) {
        if apart > 0.0 && apart.is_finite() {
            self.unseen.push((around(module).into(), apart));
        }
    }

    /// The possible difference of an operator's results in a module because of such results.
    pub(super) fn unseen(&self, module: &str) -> f64 {
        let of_module = self.unseen.iter().filter(|(around, _)| !around.is_empty() && **around == *module);
        of_module.map(|(_, apart)| *apart).fold(0.0, f64::max)
    }

    /// Whether it is the bias of a projection to attention keys: it has no effect, or in part, if the projection is fused.
    fn is_bias_of_keys(&self, key: &Key) -> bool {
        // With captured operators, the purpose of a projection is known; its shape alone shows less.
        let (module, name) = key;
        (&**name == "bias" && self.keys.contains(module)) || may_hold_keys(&format!("{module}.{name}"), 0.0, None)
    }
}

/// The calls in a module so far.
#[derive(Default)]
struct Before<'c> {
    /// Its children and their results.
    children: Vec<(&'c str, Vec<Fingerprint>)>,
    /// Whether a product followed.
    has_product: bool,
}

/// Modules that may project attention keys: siblings that ran before, unless their results are known to be queries or values.
/// In attention written out, a softmax of products identifies them.
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

/// Whether a module is another one or inside of it.
pub(super) fn is_inside(module: &str, other: &str) -> bool {
    module.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// `Module.blocks.0.attn` of `Module.blocks.0.attn.qkv`.
pub(super) fn around(module: &str) -> &str {
    module.rsplit_once('.').map_or("", |(around, _)| around)
}

/// Tensors that no operator computed, parameters and the inputs of the first operator: all of them, and those that differ only
/// in their last bits.
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
