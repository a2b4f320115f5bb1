//! What columns are taken for, and what a step and a time are.

use std::time::Duration;

/// Above this, not every step is a number of its own in a float64.
const LARGEST_STEP: f64 = 9_007_199_254_740_992.0;

/// The columns that mean something, by their numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Roles {
    pub(crate) step: Option<u32>,
    pub(crate) loss: Option<u32>,
    pub(crate) grad_norm: Option<u32>,
    pub(crate) learning_rate: Option<u32>,
    pub(crate) time: Option<u32>,
}

/// A step's number: whole, and not below zero.
pub(crate) fn whole(value: f64) -> Option<u64> {
    ((0.0..LARGEST_STEP).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

/// Seconds since 1970 of a number of seconds, milliseconds, microseconds or nanoseconds; `None` for what lies before 1973.
pub(crate) fn since_1970(value: f64) -> Option<Duration> {
    let seconds = match value {
        value if value < 1e8 => return None,
        value if value < 1e11 => value,
        value if value < 1e14 => value / 1e3,
        value if value < 1e17 => value / 1e6,
        value => value / 1e9,
    };
    Duration::try_from_secs_f64(seconds).ok()
}
