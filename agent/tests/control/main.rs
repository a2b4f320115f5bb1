//! Live control from outside: real sockets, real processes, real files.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod budget;
mod client;
mod dynamic;
mod intruders;
mod orders;
mod ranks;
mod training;
