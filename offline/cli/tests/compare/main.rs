//! `trainmon compare` against msprobe's own answers and against stated truths.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests fail the test and say what was found")]

mod bad;
mod command;
mod faults;
mod flow;
mod frameworks;
mod fused;
mod fused_tensors;
mod graph;
mod half;
mod inputs;
mod kinds;
mod leftover;
mod looks;
mod masks;
mod merge;
mod moves;
mod otherwise;
mod outcomes;
mod overflow;
#[path = "../support/golden.rs"]
mod recorded;
mod report;
mod small;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
#[path = "../support/transcript.rs"]
mod transcript;
mod unwritten;

use recorded::skip;
