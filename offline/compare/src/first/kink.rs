//! Derivatives that jump: where an activation's input is close to zero, rounding decides which of two slopes an element of the
//! gradient is multiplied by, and that element is another altogether. A sum over few such elements shows it.

use trainmon_dump::capture::TensorFacts;

use super::finding::Compared;
use super::memory::numbers;
use super::walker::Walker;
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

/// Whether it is the backward of such an activation, operator or module.
pub(super) fn is_kinked(name: OperatorName<'_>) -> bool {
    let function = name.function().replace('_', "").to_ascii_lowercase();
    name.direction == Direction::Backward && KINKED.contains(&&*function)
}

impl<'c> Walker<'c> {
    /// Whether a sum over positions of a gradient that comes straight from such an activation is apart by no more than the
    /// elements that jumped.
    ///
    /// With slopes 1 and s ≥ 0 an element g that jumps is off by (1 - s) g, and its square by (1 - s²) g², which is no less than
    /// the square of the former. So the elements that jumped have a norm of at most √|‖g'‖² - ‖g‖²|, and a sum of them, in which
    /// each stands once, is apart by no more.
    pub(super) fn has_jumped(
        &self,
        name: Option<OperatorName<'_>>,
        inputs: &[Compared<'c>],
        output: &Compared<'c>,
    ) -> bool {
        if !self.rounding.is_seen
            || output.deviation.what != What::Numbers
            || name.is_none_or(|name| name.direction != Direction::Backward)
        {
            return false;
        }
        let Some((tensor, [one, other])) = sides(output) else { return false };
        let mut jumps = inputs.iter().filter_map(|input| {
            let (gradient, [one, other]) = sides(input)?;
            let is_sum = gradient.elements()? > tensor.elements()?;
            let is_of_it = self.producer(input).is_some_and(|producer| producer.is_kinked);
            (is_sum && is_of_it).then(|| (one[3].powi(2) - other[3].powi(2)).abs().sqrt())
        });
        let count = tensor.elements().unwrap_or(1).max(1) as f64;
        let apart = |at: usize| (one[at] - other[at]).abs();
        jumps.any(|jump| apart(0) <= jump && apart(1) <= jump && apart(3) <= jump && apart(2) <= jump / count.sqrt())
    }

    /// Whether it is a parameter's gradient that a backward gave, and that was known there to be apart by what jumped or cancelled.
    pub(super) fn was_judged(&self, name: Option<OperatorName<'_>>, output: &Compared<'c>) -> bool {
        let is_gradient = name.is_some_and(|name| name.direction == Direction::ParameterGradient);
        let known = output.item.tensor().filter(|_| is_gradient && output.deviation.what == What::Numbers);
        let producer = known.and_then(|tensor| self.rounding.of_this_step(tensor));
        producer.is_some_and(|producer| producer.is_all_rounding && output.deviation.relative <= producer.deviation)
    }
}

/// A value, and its numbers on both sides.
fn sides<'c>(compared: &Compared<'c>) -> Option<(&'c TensorFacts, [[f64; 4]; 2])> {
    let (tensor, twin) = (compared.item.tensor()?, compared.twin?.tensor()?);
    Some((tensor, [numbers(tensor)?, numbers(twin)?]))
}
