//! Speaks to a training that is being watched: what is measured now, and what is to be measured from now on.
//!
//! A run describes how to come in, in a file `control.json` (`door`); `wire` sends one request and reads one answer;
//! `verb` is the command, `words` what it says to people.

mod door;
mod error;
pub(crate) mod verb;
mod wire;
mod words;

pub use door::Door;
pub use error::ControlError;
pub use wire::Answer;
