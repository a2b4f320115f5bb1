//! Requests to a running training through its live control: reading and changing what it measures.
//!
//! A run describes its endpoint in a file `control.json` (`endpoint`); `wire` sends one request and reads one response;
//! `messages` formats the response for people.

mod endpoint;
mod error;
pub(crate) mod messages;
mod wire;

pub(crate) use endpoint::Endpoint;
pub(crate) use error::ControlError;
