//! Updates by a quotient: an adaptive optimizer divides a moment by its own size, so the rounding part of a gradient becomes a
//! full update.

use trainmon_capture_files::{Leaf, Operator, Section, TensorFacts};
use trainmon_noise::SPREAD_OF_QUOTIENTS;

use super::call::Call;
use super::finding::Compared;

/// The tolerance of the result of `self + value * numerator / denominator`, relative to its size, if each operand may be off by
/// `rounding` of its own size or by its difference; `None` for other operators.
///
/// Let `δa` and `δb` be the absolute errors of numerator and denominator, `q` the largest quotient and `b` the least
/// denominator. The quotient is off by at most `(δa + q δb) / b`, and by no more than `2 q`: then even its sign differs.
pub(super) fn quotient_bound(call: &Call<'_>, output: &Compared<'_>, rounding: f64) -> Option<f64> {
    let function = call.name?.function();
    if !matches!(function, "addcdiv_" | "addcdiv") {
        return None;
    }
    let tensors: Vec<&Compared<'_>> = call.inputs.iter().filter(|input| input.item.tensor().is_some()).collect();
    let [_, numerator, denominator] = tensors[..] else { return None };
    let value = number(call.operator, ".value").unwrap_or(1.0).abs();
    let (top, bottom) = (largest(numerator)?, largest(denominator)?);
    let least = sides(denominator).map(least).try_fold(f64::INFINITY, |one, other| Some(one.min(other?)))?;
    if bottom <= 0.0 || least < 0.0 {
        return None;
    }
    let error = |compared: &Compared<'_>, size: f64| compared.deviation.relative.max(rounding) * size;
    let quotient = SPREAD_OF_QUOTIENTS * top / bottom;
    let apart = (error(numerator, top) + quotient * error(denominator, bottom)) / least;
    let absolute = value * apart.min(2.0 * quotient);
    let size = sides(output).filter_map(typical).fold(f64::INFINITY, f64::min);
    Some(absolute / size).filter(|bound| bound.is_finite())
}

fn number(operator: &Operator, place: &str) -> Option<f64> {
    let mut inputs = operator.values.iter().filter(|value| value.section == Section::Input);
    let value = inputs.find(|value| value.place.ends_with(place))?;
    if let Leaf::Plain { value, .. } = &value.leaf { value.number() } else { None }
}

fn sides<'c>(compared: &Compared<'c>) -> impl Iterator<Item = &'c TensorFacts> + use<'c> {
    [Some(compared.item), compared.twin].into_iter().flatten().filter_map(|item| item.tensor())
}

fn largest(compared: &Compared<'_>) -> Option<f64> {
    let size =
        |tensor: &TensorFacts| Some(tensor.statistics[0].number()?.abs().max(tensor.statistics[1].number()?.abs()));
    sides(compared).filter_map(size).reduce(f64::max).filter(|size| size.is_finite())
}

fn least(tensor: &TensorFacts) -> Option<f64> {
    tensor.statistics[1].number()
}

/// The root mean square of a tensor's elements, to which a mean is relative. Max and min are relative to more.
fn typical(tensor: &TensorFacts) -> Option<f64> {
    let count = tensor.elements().filter(|&count| count > 0)? as f64;
    Some(tensor.statistics[3].number()? / count.sqrt())
}
