//! Alerts through a whole monitor: rules over steps, what exporters get, what is done with them, what a resume keeps.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod actions;
mod baseline;
mod delivery;
mod findings;
#[path = "../common/recorded.rs"]
mod recorded;
mod resume;
mod run;
mod series;
mod stall;
#[path = "../common/synthetic.rs"]
mod synthetic;
