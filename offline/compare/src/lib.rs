//! Two captures side by side: what belongs together, how far it is apart, and where it began.
//!
//! The way of a comparison: `pairing` says which steps and ranks belong together and `input` reads them, a step at a time;
//! `matching` finds each value's counterpart and `first` the place where they part; `table` (or `compat`) holds every value
//! against its counterpart by what `judge` allows and `seen` knows, piece by piece; `write` and `report` put that down, `words`
//! say the answer.

mod answer;
pub mod compat;
mod deviation;
pub mod distance;
mod error;
pub mod first;
mod input;
mod joined;
pub mod judge;
pub mod matching;
pub mod merge;
mod meter;
mod name;
mod output;
pub mod overflow;
mod pairing;
mod python;
mod report;
mod request;
mod rounding;
mod seen;
pub mod table;
mod tensors;
mod thresholds;
mod words;
pub mod write;

pub use answer::{Answer, StepCaptures, Verdict, compare, compare_matched};
pub use deviation::{Deviation, What, deviation};
pub use error::CompareError;
pub(crate) use input::bytes;
pub use input::{Address, Capture, Item};
pub use joined::{Join, Joined, JoinedOperator, Layout, Recipe};
pub use meter::Meter;
pub use name::{Direction, OperatorName};
pub use pairing::{Pairing, RankPair, pair};
pub use request::{Compared, Request, Tables};
pub use rounding::{rounding, unit_roundoff};
pub use thresholds::{Thresholds, ThresholdsError};
pub use words::{as_json, in_words};

/// For maps that are asked for each value or operator: seeded by chance, and quick on short keys.
type Hashes = foldhash::fast::RandomState;
