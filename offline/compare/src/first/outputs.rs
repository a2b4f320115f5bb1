//! Whether the results of an operator differ by more than its inputs and rounding explain.

use trainmon_capture_files::{Section, TensorFacts};
use trainmon_noise::SINGLE;

use crate::deviation::{What, numbers};
use crate::item::Item;
use crate::judge::Bound;
use crate::name::{Direction, OperatorName};
use crate::rounding::coarsest;

use super::call::Call;
use super::finding::{Candidate, Compared, Kind, Suspect, suspect};
use super::fresh::SAME_AS_PRODUCED;
use super::learnt::Bounds;
use super::magnitude::{Magnitude, cancels};
use super::update::quotient_bound;

/// The square root of the number of terms in the sums behind a gradient: smaller parts, in units of round-off, are only
/// rounding.
const TERMS_OF_A_GRADIENT: f64 = 8.0;

impl<'c> Bounds<'_, 'c> {
    /// Returns the outputs that differ by more than the inputs and rounding explain.
    pub(super) fn diverging_outputs(&self, call: &Call<'c>) -> Option<Candidate> {
        let Call { name, ref inputs, ref outputs, .. } = *call;
        let is_backward = name.is_some_and(|name| name.direction != Direction::Forward);
        let bound = self.output_bound(call).bound;
        if bound.is_infinite() {
            return None;
        }
        let tensors = inputs.iter().filter(|input| input.deviation.what != What::Argument);
        let input = tensors.map(|input| input.deviation.relative).fold(0.0, f64::max);
        let is_another = is_backward && is_another_node(outputs);
        let is_beyond = |output: &&Compared<'c>| {
            let is_of_another = is_another && !is_of_one_shape(output);
            !is_of_another
                && output.deviation.relative > bound.max(output.spread)
                && !self.is_cancelled(call, output)
                && !self.is_updated(call, output)
                && !self.has_jumped(call, output)
                && !self.was_judged(call, output)
        };
        let mut parted: Vec<&Compared<'_>> = outputs.iter().filter(is_beyond).collect();
        parted.sort_by(|one, other| other.deviation.relative.total_cmp(&one.deviation.relative));
        let suspects: Vec<Suspect> = parted.iter().map(|output| suspect(output, bound)).collect();
        (!suspects.is_empty()).then_some(Candidate { kind: Kind::Operator, suspects, input })
    }

    /// The tolerance of an operator's outputs, given its inputs.
    pub(super) fn output_bound(&self, call: &Call<'c>) -> Bound {
        let Call { operator, name, ref inputs, .. } = *call;
        let (arguments, tensors): (Vec<_>, Vec<_>) =
            inputs.iter().partition(|input| input.deviation.what == What::Argument);
        let apart = |values: &[&Compared<'_>]| values.iter().map(|value| value.deviation.relative).fold(0.0, f64::max);
        let (argument, input) = (apart(&arguments), apart(&tensors));
        // A backward also uses the inputs of its forward, and a communication those of other ranks.
        let is_backward = name.is_some_and(|name| name.direction != Direction::Forward);
        let is_of_others = name.is_some_and(|name| name.is_communication());
        let from = if is_backward || is_of_others { input.max(self.learnt.rounding.largest) } else { input };
        let usual = self.comparer.judge.bound(operator, from);
        // A factor passes its own difference on to the result; it does not round on the way.
        let unseen = self.unseen_bound(call).max(argument * SAME_AS_PRODUCED);
        // Operators inside a module may round to a coarser dtype than its output without being captured, as in a recomputation.
        let is_module = call.is_forward() && name.is_some_and(|name| !name.is_operator);
        let unseen = if is_module { unseen.max(self.learnt.rounding.coarse) } else { unseen };
        Bound { bound: usual.bound.max(unseen), ..usual }
    }

    /// Whether an output differs by no more than an adaptive optimizer makes of rounding.
    pub(super) fn is_updated(&self, call: &Call<'c>, output: &Compared<'c>) -> bool {
        let Call { operator, ref inputs, .. } = *call;
        if !self.learnt.rounding.is_seen || output.deviation.what != What::Numbers {
            return false;
        }
        let rounding = self.comparer.judge.thresholds.rounding_factor * TERMS_OF_A_GRADIENT * coarsest(operator);
        let rounding = rounding.max(self.learnt.rounding.largest.min(self.learnt.rounding.coarse));
        let input = inputs.first().map_or(0.0, |input| input.deviation.relative);
        let usual = self
            .comparer
            .judge
            .bound(operator, inputs.iter().map(|input| input.deviation.relative).fold(0.0, f64::max));
        if output.deviation.relative <= usual.bound {
            return false;
        }
        let bound = quotient_bound(call, output, rounding);
        bound.is_some_and(|bound| output.deviation.relative <= bound + input)
    }

    /// Whether an output is the rest of a sum that cancels: only rounding, on both sides.
    pub(super) fn is_cancelled(&self, call: &Call<'c>, output: &Compared<'_>) -> bool {
        let operator = call.operator;
        let Some(name) = call.name.filter(|_| output.deviation.what == What::Numbers) else { return false };
        let (Some(tensor), Some(twin)) = (output.item.tensor(), output.twin.and_then(|twin| twin.tensor())) else {
            return false;
        };
        let inputs = operator.values.iter().filter(|value| value.section == Section::Input);
        let largest =
            inputs.filter_map(|value| Magnitude::of(Item { operator, value }.tensor()?)).max_by(Magnitude::order);
        let source = if name.direction == Direction::ParameterGradient { self.learnt.gradient } else { largest };
        let left = |tensor| Magnitude::of(tensor).map_or(f64::INFINITY, |magnitude| magnitude.size);
        let is_forward = name.direction == Direction::Forward;
        let mut given = operator.values.iter().filter(|value| value.section == Section::Input);
        let has_both_signs = given.any(|value| Item { operator, value }.tensor().is_some_and(has_both_signs));
        source.is_some_and(|source| {
            let terms = source.elements as f64 / tensor.elements().unwrap_or(1).max(1) as f64;
            let sums = (is_sum(name, terms) && (has_both_signs || !is_forward)) || cancels(name);
            // Each term has its own round-off; the partial sums, as many as terms, have at least that of float32.
            let of_terms = coarsest(operator).max(source.unit) * terms.max(1.0).sqrt();
            let of_sum = source.size * of_terms.max(SINGLE * terms);
            let rounding = if is_forward && is_mean(name) { of_sum / terms.max(1.0) } else { of_sum };
            sums && left(tensor).max(left(twin)) < self.comparer.judge.thresholds.rounding_factor * rounding
        })
    }
}

/// Whether an operator's result may be a sum of its inputs with this number of terms: a gradient, or a sum or mean itself.
/// Other results, such as a loss or a product with a weight, have terms that their inputs do not show.
fn is_sum(name: OperatorName<'_>, terms: f64) -> bool {
    let is_plain = is_mean(name) || matches!(name.function(), "sum" | "nansum");
    terms > 1.0 && (is_plain || name.direction != Direction::Forward)
}

fn is_mean(name: OperatorName<'_>) -> bool {
    matches!(name.function(), "mean" | "nanmean")
}

/// Whether terms can cancel.
fn has_both_signs(tensor: &TensorFacts) -> bool {
    let [max, min] = [0, 1].map(|at: usize| tensor.statistics[at].number());
    max.zip(min).is_none_or(|(max, min)| max > 0.0 && min < 0.0)
}

/// Whether a backward captured another node of the graph than the baseline's: in a finer dtype or other shapes, with other
/// outputs. An operator that computes in double casts its result, so the captured backward is that of the cast; another kernel
/// ends in another product. Such nodes are not comparable, except for outputs with equal shapes.
pub(super) fn is_another_node(outputs: &[Compared<'_>]) -> bool {
    let is_other = |output: &Compared<'_>| {
        let is_finer = output.deviation.what == What::Dtype && output.deviation.relative.is_finite();
        is_finer || is_reshaped(output)
    };
    let is_missing = |output: &Compared<'_>| output.deviation.what == What::Presence;
    outputs.iter().any(is_other) && outputs.iter().any(|output| is_missing(output) || is_reshaped(output))
}

/// Whether both sides have an output, in the same shape and dtype.
pub(super) fn is_of_one_shape(output: &Compared<'_>) -> bool {
    !matches!(output.deviation.what, What::Shape | What::Dtype | What::Presence)
}

/// Whether a result has the same number of elements in another shape, and its statistics, which do not depend on the shape,
/// differ by more than the bound: then it is another tensor.
pub(super) fn is_another_tensor(output: &Compared<'_>, bound: f64) -> bool {
    let twin = output.twin.and_then(|twin| twin.tensor());
    let apart = output.item.tensor().zip(twin).and_then(|(one, other)| numbers(one, other));
    is_reshaped(output) && apart.is_some_and(|apart| apart.relative > bound.max(output.spread))
}

/// Whether both sides have the same elements in another shape.
fn is_reshaped(output: &Compared<'_>) -> bool {
    let elements = |item: Item<'_>| item.tensor().and_then(TensorFacts::elements);
    output.deviation.what == What::Shape && elements(output.item) == output.twin.and_then(elements)
}
