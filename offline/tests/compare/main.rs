//! `trainmon compare` against msprobe's own answers and against stated truths.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail the test and say what was skipped"
)]

mod bad;
mod command;
mod faults;
mod frameworks;
mod fused;
mod fused_tensors;
mod golden;
mod inputs;
mod layer;
mod merge;
mod overflow;
mod report;
mod small;

mod truth;

/// Says that a test, or a case of one, could not run here.
fn skip(name: &str, reason: &str) {
    use std::io::Write;
    println!("SKIPPED {name}: {reason}");
    if let Some(log) = std::env::var_os("TRAINMON_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{name}: {reason}").unwrap();
    }
}
