//! The scrape page as its readers see it: over HTTP, by Prometheus' own checker, by a real server.
#![cfg(feature = "prometheus")]
#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]
#![expect(clippy::print_stdout, reason = "a skipped check says so")]

mod live;
mod real;
mod server;
mod support;
mod values;
