//! Captures against msprobe's own answers and against stated truths.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod golden;
mod layer;
mod overflow;
#[path = "../../../cli/tests/support/golden.rs"]
mod recorded;
mod truth;
