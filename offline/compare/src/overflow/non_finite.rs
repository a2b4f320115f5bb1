//! What counts as NaN or infinite, and what is so on purpose.

use trainmon_dump::capture::{Leaf, Operator, Plain, Section, TensorFacts, Value};

use crate::name::OperatorName;

/// Whether max, min or mean of a tensor are NaN or infinite.
pub(super) fn is_bad(value: &Value) -> bool {
    numbers(value).is_some_and(|mut numbers| numbers.any(|number| !number.is_finite()))
}

/// A mean is NaN also where infinities of both signs meet: that is no NaN among the elements.
pub(super) fn is_nan(value: &Value) -> bool {
    let Leaf::Tensor(tensor) = &value.leaf else { return false };
    let [max, min, mean] = [0, 1, 2].map(|at: usize| tensor.statistics[at].number());
    let is = |number: Option<f64>| number.is_some_and(f64::is_nan);
    let has_both_infinities = max == Some(f64::INFINITY) && min == Some(f64::NEG_INFINITY);
    is(max) || is(min) || (is(mean) && !has_both_infinities)
}

fn numbers(value: &Value) -> Option<impl Iterator<Item = f64> + '_> {
    let Leaf::Tensor(tensor) = &value.leaf else { return None };
    let TensorFacts { statistics, .. } = &**tensor;
    Some(statistics[..3].iter().filter_map(Plain::number))
}

/// An argument is infinite, what comes out is infinite, and none of it is NaN.
pub(super) fn is_on_purpose(operator: &Operator) -> bool {
    let is_infinite = |value: &Value| matches!(&value.leaf, Leaf::Plain { value, .. } if value.number().is_some_and(f64::is_infinite));
    let inputs = || operator.values.iter().filter(|value| value.section == Section::Input);
    inputs().any(is_infinite) && !inputs().any(is_bad) && !operator.values.iter().any(is_nan)
}

/// Whether a communication only writes into an input.
pub(super) fn is_receive_buffer(name: OperatorName<'_>, place: &str) -> bool {
    let first = [
        "recv",
        "irecv",
        "all_gather",
        "scatter",
        "reduce_scatter",
        "_reduce_scatter_base",
        "_all_gather_base",
        "all_to_all_single",
        "all_to_all",
        "all_gather_into_tensor",
        "reduce_scatter_tensor",
    ];
    let is_first = place == ".input.0" || place.starts_with(".input.0.") || place == ".input.tensor";
    (first.contains(&name.function()) && is_first) || (name.function() == "gather" && place.starts_with(".input.1"))
}

/// Whether an operator writes all of its first input, or fills what is bad in it, without reading it.
pub(super) fn is_overwritten(name: OperatorName<'_>, place: &str) -> bool {
    let writes = [
        "bernoulli_",
        "cauchy_",
        "copy_",
        "exponential_",
        "fill_",
        "geometric_",
        "log_normal_",
        "masked_fill_",
        "normal_",
        "random_",
        "uniform_",
        "zero_",
    ];
    place == ".input.0" && writes.contains(&name.operation())
}
