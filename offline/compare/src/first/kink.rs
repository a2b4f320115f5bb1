//! Derivatives that jump: if the input of an activation is close to zero, rounding decides which of two slopes multiplies an
//! element of the gradient, so that this element changes completely. A sum over few such elements shows it.

use trainmon_capture_files::TensorFacts;
use trainmon_noise::SINGLE;

use super::call::Call;
use super::finding::Compared;
use super::learnt::Bounds;
use super::magnitude::unit;
use super::memory::numbers;
use crate::deviation::What;
use crate::name::{Direction, OperatorName};

/// Activations whose derivative has two values, by name without underscores.
const KINKED: [&str; 11] = [
    "relu",
    "relu6",
    "leakyrelu",
    "prelu",
    "rrelu",
    "threshold",
    "hardtanh",
    "hardswish",
    "hardshrink",
    "softshrink",
    "clamp",
];

/// Whether it is the backward of such an activation, as an operator or a module.
pub(super) fn is_kinked(name: OperatorName<'_>) -> bool {
    let function = name.function().replace('_', "").to_ascii_lowercase();
    name.direction == Direction::Backward && KINKED.contains(&&*function)
}

impl<'c> Bounds<'_, 'c> {
    /// Whether a sum over positions of a gradient that comes directly from such an activation differs by no more than the
    /// elements that jumped.
    ///
    /// With slopes 1 and s ≥ 0, an element g that jumps is off by (1 - s) g, and its square by (1 - s²) g², which is no less
    /// than the square of the former. So the norm of elements that jumped the same way is at most √|‖g'‖² - ‖g‖²|, and a sum of
    /// them with each element once differs by no more. Opposite jumps hide each other in the norm. If the total shows on both
    /// sides that the sum has that form, it may differ by the largest element.
    pub(super) fn has_jumped(&self, call: &Call<'c>, output: &Compared<'c>) -> bool {
        let may_jump = self.learnt.rounding.is_seen && call.goes(Direction::Backward);
        if !may_jump || output.deviation.what != What::Numbers {
            return false;
        }
        let Some((tensor, [one, other])) = sides(output) else { return false };
        let mut jumps = call.inputs.iter().filter_map(|input| {
            let (gradient, [one, other]) = sides(input)?;
            let is_sum = gradient.elements()? > tensor.elements()?;
            let is_of_it = self.producer(input).is_some_and(|producer| producer.is_kinked);
            let jump = jumped(gradient, one[3], other[3]);
            let largest = [one, other].iter().flat_map(|side| &side[..2]).fold(0.0_f64, |most, it| most.max(it.abs()));
            (is_sum && is_of_it).then(|| if is_total(input, output) { jump.max(largest) } else { jump })
        });
        let count = tensor.elements().unwrap_or(1).max(1) as f64;
        let apart = |at: usize| (one[at] - other[at]).abs();
        jumps.any(|jump| apart(0) <= jump && apart(1) <= jump && apart(3) <= jump && apart(2) <= jump / count.sqrt())
    }

    /// Whether it is a result that an earlier operator produced and that was judged there: a parameter gradient that differed
    /// by jumps or cancellation, or a module's output that an operator inside of it produced.
    pub(super) fn was_judged(&self, call: &Call<'c>, output: &Compared<'c>) -> bool {
        let Some(name) = call.name.filter(|name| !name.is_operator && output.deviation.what == What::Numbers) else {
            return false;
        };
        let producer = output.item.tensor().and_then(|tensor| self.learnt.rounding.of_this_step(tensor));
        let is_module = name.direction == Direction::Forward;
        producer.is_some_and(|producer| {
            (producer.is_all_rounding || is_module) && output.deviation.relative <= producer.deviation
        })
    }
}

/// The norm of elements that jumped the same way, from the norms of both sides. Half-precision norms also differ by their
/// round-off, for n elements by a unit / √n (1σ), which is not a jump.
fn jumped(gradient: &TensorFacts, one: f64, other: f64) -> f64 {
    let count = gradient.elements().unwrap_or(1).max(1) as f64;
    let rounding =
        if unit(gradient) > SINGLE { 2.0 * one.max(other).powi(2) * unit(gradient) / count.sqrt() } else { 0.0 };
    ((one.powi(2) - other.powi(2)).abs() - rounding).max(0.0).sqrt()
}

/// Whether, on both sides, a sum's elements have the same total as those of its source, except for its round-off. Terms may
/// have half precision; the sums need at least single precision, or totals show nothing about an element.
fn is_total(input: &Compared<'_>, output: &Compared<'_>) -> bool {
    let total = |value: &Compared<'_>| {
        let (tensor, [one, other]) = sides(value)?;
        let count = tensor.elements()? as f64;
        Some([one, other].map(|numbers| (count * numbers[2], numbers[3] * count.sqrt() * unit(tensor).min(SINGLE))))
    };
    let is_single = output.item.tensor().is_some_and(|tensor| unit(tensor) <= SINGLE);
    is_single
        && total(input).zip(total(output)).is_some_and(|(terms, sums)| {
            terms.iter().zip(&sums).all(|((terms, rounding), (sums, _))| (terms - sums).abs() <= *rounding)
        })
}

/// A value with its numbers on both sides.
fn sides<'c>(compared: &Compared<'c>) -> Option<(&'c TensorFacts, [[f64; 4]; 2])> {
    let (tensor, twin) = (compared.item.tensor()?, compared.twin?.tensor()?);
    Some((tensor, [numbers(tensor)?, numbers(twin)?]))
}
