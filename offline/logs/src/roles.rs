//! The roles of columns, and the values accepted as a step or a time.

use std::time::Duration;

/// Above this, float64 cannot represent every step.
const LARGEST_STEP: f64 = 9_007_199_254_740_992.0;

/// The columns with a role, by their indices.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Roles {
    pub(crate) step: Option<u32>,
    pub(crate) loss: Option<u32>,
    pub(crate) grad_norm: Option<u32>,
    pub(crate) learning_rate: Option<u32>,
    pub(crate) time: Option<u32>,
}

/// Converts a non-negative whole number to a step.
pub(crate) fn whole(value: f64) -> Option<u64> {
    ((0.0..LARGEST_STEP).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

/// Converts seconds, milliseconds, microseconds or nanoseconds to a time since 1970; `None` for times before 1973.
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
