//! Two captures side by side: what belongs together, how far it is apart, and where it began.
//!
//! The way of a comparison: `pairing` says which steps and ranks belong together and `input` reads them, a step at a time;
//! `matching` finds each value's counterpart and `first` the place where they part; `table` (or `compat`) holds every value
//! against its counterpart by what `judge` allows and `evidence` knows, piece by piece; `write` and `report` put that down, `messages`
//! say the answer.

#![forbid(unsafe_code)]

mod answer;
mod buffers;
mod captures;
pub mod compat;
mod condition;
mod deviation;
mod error;
mod euclidean;
mod evaluation;
mod evidence;
mod fingerprint;
mod first;
mod input;
mod item;
mod joined;
mod judge;
mod location;
pub mod matching;
pub mod merge;
mod messages;
mod meter;
mod name;
mod output;
pub mod overflow;
mod pairing;
mod python;
mod report;
mod request;
mod rounding;
mod script;
mod search;
mod table;
mod tensors;
mod text;
mod thresholds;
mod unwritten;
mod verdict;
mod write;
mod write_only;

pub use answer::{Answer, Options, StepCaptures, Verdict, compare, compare_matched};
pub use deviation::{Deviation, What, deviation};
pub use error::CompareError;
pub use evaluation::{Evaluation, Sides};
pub use first::Kind;
pub use input::Capture;
pub use meter::Meter;
pub use request::{Compared, Request, RequestError, Tables, as_json, in_words};
pub use thresholds::Thresholds;
pub use write::Format;
