//! OTLP export, end to end: a real monitor on one side, on the other a receiver in a process of its own that is built on
//! the official protobuf definitions and shares nothing with the exporter.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]
#![expect(clippy::print_stdout, reason = "a skipped test says so")]

mod delivery;
mod losses;
mod outage;
mod receiver;
mod run;
#[path = "../common/skipping.rs"]
mod skipping;
mod tls;
