//! Speaks to a training that is being watched: what is measured now, and what is to be measured from now on.
//!
//! A run describes how to come in, in a file `control.json` (`door`); `wire` sends one request and reads one answer;
//! `words` is what it says to people.

mod door;
mod error;
mod wire;
pub(crate) mod words;

pub(crate) use door::Door;
pub(crate) use error::ControlError;
