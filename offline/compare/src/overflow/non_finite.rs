//! The definition of NaN and infinite values, and of those on purpose.

use trainmon_capture_files::{Leaf, Plain, Value};

/// Whether max, min or mean of a tensor are NaN or infinite.
pub(super) fn is_bad(value: &Value) -> bool {
    numbers(value).is_some_and(|mut numbers| numbers.any(|number| !number.is_finite()))
}

/// Whether elements are NaN. A mean is also NaN if infinities of both signs meet, which does not count.
pub(super) fn is_nan(value: &Value) -> bool {
    let Some(tensor) = value.tensor().filter(|tensor| !tensor.is_unwritten) else { return false };
    let [max, min, mean] = [0, 1, 2].map(|at: usize| tensor.statistics[at].number());
    let is = |number: Option<f64>| number.is_some_and(f64::is_nan);
    let has_both_infinities = max == Some(f64::INFINITY) && min == Some(f64::NEG_INFINITY);
    is(max) || is(min) || (is(mean) && !has_both_infinities)
}

fn numbers(value: &Value) -> Option<impl Iterator<Item = f64> + '_> {
    // Unwritten memory does not count.
    let tensor = value.tensor().filter(|tensor| !tensor.is_unwritten)?;
    Some(tensor.statistics[..3].iter().filter_map(Plain::number))
}

/// Whether some elements are infinite and none is NaN.
pub(super) fn has_infinity(value: &Value) -> bool {
    is_bad(value) && !is_nan(value)
}

/// Whether this is an infinite number argument.
pub(super) fn was_told_infinity(value: &Value) -> bool {
    matches!(&value.leaf, Leaf::Plain { value, .. } if value.number().is_some_and(f64::is_infinite))
}
