//! What rounding is: how far it takes a sum, and what an optimizer makes of it. Captures, monitored runs and a
//! training's baseline use this one model.
//!
//! - [`unit_roundoff`], [`of_sum`], [`of_reordered_sums`]: how far another order of summing takes a result.
//! - [`may_hold_keys`]: parameters of which a part has a gradient that is rounding alone, though the whole has not.
//! - [`Moved`]: how far two runs may be apart in a parameter whose gradient is rounding, by what updates moved it.

#![forbid(unsafe_code)]

mod keys;
mod moved;
mod roundoff;

pub use keys::may_hold_keys;
pub use moved::{Moved, Numbers, SPREAD_OF_QUOTIENTS};
pub use roundoff::{SINGLE, of_reordered_sums, of_sum, unit_roundoff};
