//! The journal in a running monitor: processes that are killed, and what is left of them.

#![cfg(unix)]
#![expect(clippy::print_stdout, reason = "a seed for whoever repeats a test, and the children's word to their parents")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod killed;
mod remains;
mod running;
mod training;
