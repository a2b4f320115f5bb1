//! Compares two captures: pairs their values, measures the differences, and finds the first divergence.
//!
//! The order of a comparison: `pairing` pairs steps and ranks, and `input` reads them, a step at a time. `matching` finds the
//! counterpart of each value and `first` the first divergence. `table` (or `compat`) lists every value with its counterpart,
//! the tolerance from `judge` and the findings from `evidence`. `write` and `report` write the files, `messages` the answer.

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

pub use answer::{CaptureAnswer, CaptureVerdict, Options, StepCaptures, compare, compare_matched};
pub use deviation::{Deviation, What, deviation};
pub use error::CompareError;
pub use evaluation::{Evaluation, Sides};
pub use first::Kind;
pub use input::Capture;
pub use item::Address;
pub use meter::Meter;
pub use request::{Compared, Request, RequestError, Tables, as_json, in_words};
pub use table::mode as common_mode;
pub use thresholds::Thresholds;
pub use write::Format;
