//! Whether results of rewritten code agree.

use trainmon_capture_files::{Leaf, Operator, Plain};
use trainmon_noise::SINGLE;

use super::call::{Call, looks};
use super::finding::Compared;
use super::learnt::Bounds;
use super::magnitude::unit;
use super::memory::numbers;
use crate::deviation::What;
use crate::item::Item;
use crate::judge::coarse;
use crate::name::OperatorName;
use crate::rounding::coarsest;

/// The difference up to which results agree for certain: float32 rounding. (Not enough for half precision.)
pub(super) const SURE: f64 = 1.5e-5;

/// The tolerance of max and min in half precision, in units of round-off: about one for each additional operator.
const UNITS_OF_ELEMENTS: f64 = 4.0;

/// The tolerance of norm and mean in units / √n, for n elements that round independently (1σ).
const UNITS_OF_AVERAGES: f64 = 8.0;

/// The part of a unit by which norm and mean differ if all elements round together, as with a common rounded factor (0.36 was
/// measured for a GELU written out).
const UNITS_OF_BIAS: f64 = 0.5;

/// The difference in units of round-off up to which results are the same but slightly wrong.
const UNITS_OF_A_FAULT: f64 = 16.0;

impl<'c> Bounds<'_, 'c> {
    /// The tolerance for results of rewritten code.
    pub(super) fn results_agree_to(&self, operator: &Operator) -> f64 {
        // An update is not a sum that other code could round differently.
        if self.is_update(OperatorName::parse(&operator.name)) {
            return coarse(operator);
        }
        let thresholds = self.comparer.judge.thresholds;
        let rounding = thresholds.growth * thresholds.rounding_factor * coarsest(operator);
        self.fresh_bound(operator).max(rounding.min(thresholds.ceiling.max(4.0 * coarsest(operator))))
    }

    /// Whether a value that results from such code agrees.
    pub(super) fn agrees(&self, operator: &Operator, value: &Compared<'_>) -> bool {
        value.deviation.relative <= self.results_agree_to(operator) && are_near(value)
    }

    /// Whether a call has another switch but the same results: the tensors of both sides agree. A number, such as an epsilon,
    /// may matter at another time.
    pub(super) fn is_called_otherwise(&self, call: &Call<'c>) -> bool {
        let is_switch =
            |item: Item<'_>| matches!(&item.value.leaf, Leaf::Plain { value, .. } if matches!(value, Plain::Bool(_)));
        let is_other_switch = |input: &Compared<'_>| {
            input.deviation.what == What::Argument && is_switch(input.item) && input.twin.is_some_and(is_switch)
        };
        let is_in_order = |input: &Compared<'c>| is_other_switch(input) || !self.is_fresh(call, input);
        let has_tensors = |output: &&Compared<'_>| {
            output.item.tensor().is_some() && output.twin.is_some_and(|twin| twin.tensor().is_some())
        };
        let mut given = call.outputs.iter().filter(has_tensors).peekable();
        let tensors = call.inputs.iter().filter(|input| input.item.tensor().is_some());
        let apart = tensors.map(|input| input.deviation.relative).filter(|apart| apart.is_finite()).fold(0.0, f64::max);
        let bound = self.comparer.judge.bound(call.operator, apart.min(self.learnt.rounding.largest)).bound;
        call.is_forward()
            && given.peek().is_some()
            && call.inputs.iter().all(is_in_order)
            && given.all(|output| output.deviation.relative <= bound.max(output.spread))
    }

    /// Whether a forward call receives the result of a one-sided call that is nearly right, but differs by more than half
    /// precision explains.
    pub(super) fn is_nearly_given(&self, call: &Call<'_>, input: &Compared<'_>) -> bool {
        let is_forward = call.is_forward() && self.learnt.gradient.is_none();
        let most = input.item.tensor().map_or(0.0, |tensor| UNITS_OF_A_FAULT * unit(tensor));
        is_forward
            && input.deviation.is_some()
            && input.deviation.relative <= most
            && !are_near(input)
            && looks(input).iter().any(|looks| self.learnt.given.contains(looks))
    }
}

/// Whether statistics differ by no more than half-precision rounding. Other dtypes are judged as a whole.
///
/// Elements round by a unit, their norm and mean by far less: two units in all elements are not rounding.
fn are_near(value: &Compared<'_>) -> bool {
    let twin = value.twin.and_then(|twin| twin.tensor());
    let Some((one, other)) = value.item.tensor().zip(twin).filter(|_| value.deviation.what == What::Numbers) else {
        return true;
    };
    let unit = unit(one).max(unit(other));
    let (Some(a), Some(b)) = (numbers(one), numbers(other)) else { return true };
    let count = one.elements().unwrap_or(1).max(1) as f64;
    let size = [a, b].iter().flat_map(|side| &side[..2]).fold(0.0_f64, |most, it| most.max(it.abs()));
    let norm = a[3].max(b[3]);
    let of_averages = (UNITS_OF_AVERAGES / count.sqrt() + UNITS_OF_BIAS) * unit;
    let is_near = |at: usize, bound: f64| (a[at] - b[at]).abs() <= bound + spacing([a[at], b[at]], unit);
    let is_of_elements = |at: usize| (a[at] - b[at]).abs() <= UNITS_OF_ELEMENTS * unit * size;
    unit <= SINGLE
        || (is_of_elements(0)
            && is_of_elements(1)
            && is_near(2, of_averages * norm / count.sqrt())
            && is_near(3, of_averages * norm))
}

/// The difference of two numbers caused by rounding the numbers themselves to half precision, as msprobe does with statistics;
/// 0 if they were not rounded.
fn spacing(numbers: [f64; 2], unit: f64) -> f64 {
    let of = |number: f64| {
        let spacing = 2.0 * unit * number.abs().log2().floor().exp2();
        if number == 0.0 { Some(0.0) } else { (number / spacing).fract().eq(&0.0).then_some(spacing) }
    };
    let [one, other] = numbers.map(of);
    one.zip(other).map_or(0.0, |(one, other)| one.max(other))
}

/// Whether a call differs in its running statistics: it updates them, and only an evaluation uses them.
pub(super) fn keeps_statistics(call: &Call<'_>) -> bool {
    let is_norm = call
        .name
        .is_some_and(|name| name.function().ends_with("batch_norm") || name.function().ends_with("instance_norm"));
    let places = [".input.1", ".input.2", ".running_mean", ".running_var"];
    let is_statistic = |input: &Compared<'_>| places.contains(&&*input.item.value.place) && is_another_tensor(input);
    is_norm && call.inputs.iter().any(is_statistic)
}

/// Whether a tensor differs by more than rewritten code explains.
pub(super) fn is_another_tensor(value: &Compared<'_>) -> bool {
    value.item.tensor().is_some() && (value.deviation.what != What::Numbers || value.deviation.relative > SURE)
}
