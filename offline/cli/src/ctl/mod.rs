//! Speaks to a training that is being watched: what is measured now, and what is to be measured from now on.
//!
//! A run describes how to come in, in a file `control.json` (`door`); `wire` sends one request and reads one answer;
//! `messages` is what it says to people.

mod door;
mod error;
pub(crate) mod messages;
mod wire;

pub(crate) use door::Door;
pub(crate) use error::ControlError;
