//! The distance of two tensors, element by element in one pass: for captures and checkpoints.

#![forbid(unsafe_code)]

mod distance;
mod quotient;
mod units;

pub use distance::Distance;
pub use quotient::Quotient;
