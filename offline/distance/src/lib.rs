//! How far two tensors are apart, element by element, in one pass over both: for captures and for checkpoints.

#![forbid(unsafe_code)]

mod distance;
mod quotient;
mod units;

pub use distance::Distance;
pub use quotient::Quotient;
