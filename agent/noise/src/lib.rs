//! A model of rounding error: its effect on sums, and its amplification by an optimizer. Comparisons of captures and of
//! monitored runs use it, and so does the baseline of a training.
//!
//! - [`unit_roundoff`], [`of_sum`], [`of_reordered_sums`]: the effect of another order of summation.
//! - [`may_hold_keys`]: parameters of which a part has a gradient that is only rounding.
//! - [`Moved`]: the possible difference of a parameter whose gradient is only rounding, from its updates.

#![forbid(unsafe_code)]

mod keys;
mod moved;
mod roundoff;

pub use keys::may_hold_keys;
pub use moved::{Moved, Numbers, SPREAD_OF_QUOTIENTS};
pub use roundoff::{SINGLE, of_reordered_sums, of_sum, unit_roundoff};
