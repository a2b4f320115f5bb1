//! What columns are taken for, and what a step is.

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
