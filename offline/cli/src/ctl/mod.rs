//! Requests to a running training through its live control: reading and changing what it measures.
//!
//! A run describes its endpoint in a file `control.json` (`endpoint`); `wire` sends one request and reads one response;
//! `messages` formats the response for people.

mod door;
mod error;
pub(crate) mod messages;
mod wire;

pub(crate) use door::Door;
pub(crate) use error::ControlError;
