//! Alerts through a whole monitor: rules over steps, what exporters get, what is done with them, what a resume keeps.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]
#![expect(clippy::print_stdout, reason = "a skipped test says so, another what it counted")]

mod actions;
mod baseline;
mod beginnings;
mod delivery;
mod findings;
mod losses;
#[path = "../common/recorded.rs"]
mod recorded;
mod resume;
mod run;
mod series;
#[path = "../common/skipping.rs"]
mod skipping;
mod stall;
#[path = "../common/synthetic.rs"]
mod synthetic;
