//! Two captures side by side: what belongs together, how far it is apart, and where it began.

pub mod compat;
mod deviation;
pub mod distance;
mod first;
mod input;
pub mod matching;
mod name;
mod pairing;
mod python;
mod rounding;

pub use deviation::{Deviation, What, deviation};
pub use input::{Address, Capture, Item};
pub use name::{Direction, OperatorName};
pub use pairing::{Pairing, RankPair, pair};
pub use rounding::{rounding, unit_roundoff};
