//! What counts as NaN or infinite, and what is so on purpose.

use trainmon_dump::capture::{Leaf, Plain, TensorFacts, Value};

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

/// Whether there are infinite elements, and none is NaN.
pub(super) fn has_infinity(value: &Value) -> bool {
    is_bad(value) && !is_nan(value)
}

/// Whether this is a number given as an argument, an infinite one.
pub(super) fn was_told_infinity(value: &Value) -> bool {
    matches!(&value.leaf, Leaf::Plain { value, .. } if value.number().is_some_and(f64::is_infinite))
}

/// Whether an input is read: memory that is only written into tells nothing.
pub(super) fn is_read(name: OperatorName<'_>, value: &Value) -> bool {
    !is_receive_buffer(name, &value.place) && !is_overwritten(name, &value.place)
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
fn is_overwritten(name: OperatorName<'_>, place: &str) -> bool {
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
