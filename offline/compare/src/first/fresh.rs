//! Classifies the inputs of an operator: produced by earlier operators, or new, and of which kind.

use trainmon_capture_files::{Leaf, Operator, Plain, Section, TensorFacts};
use trainmon_noise::SINGLE;

use crate::deviation::{What, of_another_order};
use crate::item::Item;
use crate::judge::{Bound, BoundSource, coarse};
use crate::name::{Direction, OperatorName};
use crate::rounding::{coarsest, unit_roundoff};

use super::call::{Call, looks};
use super::finding::{Candidate, Compared, Kind, Suspect, suspect};
use super::learnt::Bounds;
use super::magnitude::{Magnitude, is_product, takes_weights, unit};
use super::noise::Produced;
use crate::fingerprint::Fingerprint;

/// The tolerance for identifying a value with an earlier output, as a multiple of that output's difference.
pub(super) const SAME_AS_PRODUCED: f64 = 4.0;

/// The tolerance of numbers computed in float32, in its units.
const UNITS_OF_AN_ARGUMENT: f64 = 4.0;

/// Inputs of an operator that nothing before it explains.
pub(super) struct Fresh<'v, 'c> {
    /// The candidate for a finding.
    pub(super) candidate: Candidate,
    /// The values in the operator's order.
    pub(super) values: Vec<&'v Compared<'c>>,
    /// The fingerprints of both sides.
    pub(super) fingerprints: Vec<Fingerprint>,
}

impl<'c> Bounds<'_, 'c> {
    /// Returns inputs that differ although nothing before them did, or did so by far less.
    pub(super) fn fresh<'v>(&self, call: &'v Call<'c>) -> Option<Fresh<'v, 'c>> {
        let is_fresh = |input: &&Compared<'c>| self.is_fresh(call, input) && another_order(call, input) == 0.0;
        let values: Vec<&Compared<'c>> = call.inputs.iter().filter(is_fresh).collect();
        if values.is_empty() {
            return None;
        }
        let fingerprints = values.iter().flat_map(|input| looks(input)).collect();
        Some(Fresh { candidate: self.fresh_candidate(call, values.clone()), values, fingerprints })
    }

    /// Returns inputs whose elements may be in another order, as far as statistics show. This is no finding by itself, because
    /// a product of two reordered factors is the same. If something differs because of it, it is the origin.
    pub(super) fn reordered(&self, call: &Call<'c>) -> Option<Candidate> {
        let is_reordered = |input: &&Compared<'c>| another_order(call, input) > 0.0 && self.is_fresh(call, input);
        let values: Vec<&Compared<'c>> = call.inputs.iter().filter(is_reordered).collect();
        (!values.is_empty()).then(|| self.fresh_candidate(call, values))
    }

    fn fresh_candidate(&self, call: &Call<'c>, mut fresh: Vec<&Compared<'c>>) -> Candidate {
        fresh.sort_by(|one, other| other.deviation.relative.total_cmp(&one.deviation.relative));
        let kind = if let Some(argument) = fresh.iter().position(|input| is_argument(input)) {
            fresh.swap(0, argument);
            Kind::Argument
        } else if fresh.iter().all(|input| self.is_parameter(call, input)) {
            Kind::Parameter
        } else if fresh.iter().any(|input| self.was_produced_before(input)) || self.learnt.compared > 1 {
            Kind::Between
        } else {
            Kind::Data
        };
        let bound = self.fresh_bound(call.operator);
        let suspects: Vec<Suspect> = fresh.iter().map(|input| suspect(input, bound)).collect();
        Candidate { kind, suspects, input: 0.0 }
    }

    pub(super) fn is_fresh(&self, call: &Call<'c>, input: &Compared<'c>) -> bool {
        if !input.deviation.is_some() || input.at.is_some_and(|at| self.comparer.broadcast.contains(&at)) {
            return false;
        }
        if input.deviation.what == What::Argument {
            return input.deviation.relative > self.argument_bound(input).max(input.spread);
        }
        if input.deviation.relative > input.spread && self.is_nearly_given(call, input) {
            return true;
        }
        if input.deviation.relative <= self.input_bound(call, input).max(input.spread) {
            return false;
        }
        // An earlier output looks the same and has the same difference.
        let is_made = |producer: Produced| {
            let unit = if self.learnt.rounding.is_seen { producer.unit } else { 0.0 };
            input.deviation.relative <= producer.deviation.max(unit) * SAME_AS_PRODUCED
        };
        !self.producer(input).is_some_and(is_made)
            && !self.is_updated_by_rounding(call, input)
            && !self.is_shifted(call, input)
            && !self.is_left_of_gradients(call, input)
    }

    /// Whether a gradient is the rest of a sum that cancels, on both sides: rounding of terms of the size of other gradients of
    /// its shape. The gradients of several uses of a value are added up without being captured. A maximum that is subtracted
    /// again, to keep an exponential small, has such a gradient.
    pub(super) fn is_left_of_gradients(&self, call: &Call<'c>, input: &Compared<'c>) -> bool {
        let is_sum = call.goes(Direction::Backward) && input.deviation.what == What::Numbers;
        let tensors = input.item.tensor().zip(input.twin.and_then(|twin| twin.tensor())).filter(|_| is_sum);
        tensors.is_some_and(|(tensor, twin)| {
            let largest = tensor.elements().and_then(|elements| self.learnt.gradients.get(&elements));
            let rounding = self.comparer.judge.thresholds.rounding_factor * unit(tensor).max(SINGLE);
            let is_left = |tensor: &TensorFacts| {
                Magnitude::of(tensor).zip(largest).is_some_and(|(left, largest)| left.size < rounding * largest)
            };
            is_left(tensor) && is_left(twin)
        })
    }

    /// The tolerance of an input that no earlier operator produced.
    pub(super) fn allowed_input(&self, call: &Call<'c>, input: &Compared<'c>) -> Bound {
        let (bound, source) = match input.deviation.what {
            What::Argument => (self.argument_bound(input), BoundSource::Exact),
            _ => (self.input_bound(call, input).max(another_order(call, input)), BoundSource::Rounding),
        };
        Bound { bound, source }.or_spread(input.spread)
    }

    /// The earlier output that an input is, even if it is only rounding and was scaled without being captured.
    pub(super) fn producer(&self, input: &Compared<'_>) -> Option<Produced> {
        let tensor = input.item.tensor()?;
        self.learnt.rounding.producer(tensor).or_else(|| {
            let twin = input.twin?.tensor().filter(|_| input.deviation.is_some())?;
            self.learnt.rounding.residue(tensor, twin, self.comparer.judge.thresholds.ceiling)
        })
    }

    /// The tolerance of an input that no operator produced. A change of a parameter or moment by a one-sided call is never
    /// rounding, however small.
    fn input_bound(&self, call: &Call<'c>, input: &Compared<'_>) -> f64 {
        let operator = call.operator;
        let usual = self.fresh_bound(operator);
        let is_changed =
            || self.is_update(call.name) && looks(input).iter().any(|looks| self.learnt.changed.contains(looks));
        if self.learnt.rounding.is_seen && is_changed() {
            return usual.min(coarse(operator));
        }
        // A gradient that no captured operator produced was computed nevertheless, and rounds like a result. So does a part of
        // a result, such as a third of fused projections, in the last bit of its mean.
        let is_unrecorded = !self.was_produced_before(input)
            && input.item.tensor().is_some_and(|tensor| self.learnt.rounding.of_this_step(tensor).is_none());
        let is_backward = call.goes(Direction::Backward);
        let is_part = self.learnt.compared > 1 && !self.is_parameter(call, input);
        match (is_unrecorded, is_backward, is_part) {
            (true, true, _) => usual.max(coarse(operator)),
            (true, false, true) => usual.max(coarsest(operator)),
            _ => usual,
        }
    }

    /// Whether an operator is part of an update: it runs forward, after gradients.
    pub(super) fn is_update(&self, name: Option<OperatorName<'_>>) -> bool {
        self.learnt.gradient.is_some() && name.is_some_and(|name| name.direction == Direction::Forward)
    }

    pub(super) fn fresh_bound(&self, operator: &Operator) -> f64 {
        let ceiling = self.comparer.judge.thresholds.ceiling.max(self.learnt.rounding.coarse).max(coarse(operator));
        // The noise that statistics show can be less than the last bit of a value.
        let noise = (self.learnt.rounding.largest * self.comparer.judge.thresholds.growth).max(coarse(operator));
        if self.learnt.rounding.is_seen { noise.min(ceiling) } else { 0.0 }
    }

    /// The tolerance of an argument: a few units of float32 if anything rounded. Only a number with all its digits on both
    /// sides may come from a tensor of one element, and differ as that tensor did.
    fn argument_bound(&self, input: &Compared<'_>) -> f64 {
        if !self.learnt.rounding.is_seen {
            return 0.0;
        }
        let is_computed =
            |item: Item<'_>| matches!(&item.value.leaf, Leaf::Plain { value, .. } if has_all_digits(value));
        let few = UNITS_OF_AN_ARGUMENT * unit_roundoff("float32").unwrap_or_default();
        let is_of_a_tensor = is_computed(input.item) && input.twin.is_some_and(is_computed);
        let most = self.comparer.judge.thresholds.ceiling.max(self.learnt.rounding.coarse);
        if is_of_a_tensor { few.max((self.learnt.rounding.scalars * SAME_AS_PRODUCED).min(most)) } else { few }
    }

    pub(super) fn is_parameter(&self, call: &Call<'c>, input: &Compared<'_>) -> bool {
        if input.item.value.section == Section::Parameter {
            return true;
        }
        let (Some(tensor), Some(name)) = (input.item.tensor(), call.name) else { return false };
        if name.direction != Direction::Forward {
            return false;
        }
        // If modules list their parameters, any other tensor was computed.
        let known = &self.learnt.rounding.parameters.names;
        let is_weight = takes_weights(name.function())
            && &*input.item.value.place != ".input.0"
            && tensor.requires_grad == Some(true)
            && (known.is_empty() || known.contains_key(&Fingerprint::of(tensor)));
        is_weight || self.is_a_modules(call.operator, tensor)
    }

    /// Whether a tensor looks like a parameter of a module in which an operator runs.
    fn is_a_modules(&self, operator: &Operator, tensor: &TensorFacts) -> bool {
        let looks = Fingerprint::of(tensor);
        let ancestors = self.comparer.sides.target.construct.ancestors(&operator.name);
        let modules =
            self.comparer.sides.target.document.operators.iter().filter(|module| ancestors.contains(&&*module.name));
        let mut parameters =
            modules.flat_map(|module| &module.values).filter(|value| value.section == Section::Parameter);
        parameters.any(|value| matches!(&value.leaf, Leaf::Tensor(other) if Fingerprint::of(other) == looks))
    }

    /// Whether the baseline's counterpart is an output of an earlier operator: then it changed in between.
    fn was_produced_before(&self, input: &Compared<'_>) -> bool {
        let twin = input.twin.and_then(|twin| twin.tensor());
        twin.is_some_and(|tensor| self.learnt.rounding.of_this_step(tensor).is_some())
    }
}

/// The difference of a factor whose elements are in another order; 0 if the difference is larger, or checksums may show other
/// elements.
fn another_order(call: &Call<'_>, input: &Compared<'_>) -> f64 {
    let is_product = call.name.is_some_and(|name| is_product(name.operation()));
    let twin = input.twin.and_then(|twin| twin.tensor());
    let tensors = input.item.tensor().zip(twin).filter(|_| is_product && input.deviation.what == What::Numbers);
    let tensors = tensors.filter(|(one, other)| one.digest.is_none() || other.digest.is_none());
    let bound = tensors.and_then(|(one, other)| of_another_order(one, other));
    bound.filter(|bound| input.deviation.relative <= *bound).unwrap_or(0.0)
}

/// Whether a number has more digits than a person would write.
fn has_all_digits(value: &Plain) -> bool {
    /// The most digits of a number that a person writes, such as 0.000125 or 1.0000001.
    const WRITTEN: usize = 8;
    let Plain::Float(value) = value else { return false };
    let text = format!("{value:e}");
    let digits = text.split('e').next().unwrap_or_default();
    digits.bytes().filter(u8::is_ascii_digit).count() > WRITTEN
}

/// Whether an input is not a tensor: another number or text, or one that a side omits.
fn is_argument(input: &Compared<'_>) -> bool {
    let is_plain = |item: Item<'_>| matches!(item.value.leaf, Leaf::Plain { .. } | Leaf::Nothing);
    let is_left_out = input.deviation.what == What::Presence && is_plain(input.item) && input.twin.is_none_or(is_plain);
    input.deviation.what == What::Argument || is_left_out
}
