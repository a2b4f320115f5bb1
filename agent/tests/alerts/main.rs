//! Alerts through a whole monitor: rules over steps, what exporters get, what is done with them, what a resume keeps.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod actions;
mod delivery;
mod findings;
mod resume;
mod run;
mod stall;
