//! A capture from the outside: a host's calls in, msprobe's files out.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail the test, and say what is skipped"
)]

mod disk;
mod killed;
mod names;
mod numbers;
mod sharing;
mod support;
mod tensors;
