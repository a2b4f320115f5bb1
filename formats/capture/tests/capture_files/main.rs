//! Captures written and read back.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail the test, and say what is skipped"
)]

mod directory;
mod golden;
mod records;
mod support;
