//! `trainmon compare-runs` as a person and as a program see it: real trainings, golden files of the real msprobe, and made-up
//! runs whose first divergence is known.

mod bad;
mod blow_up;
mod journal;
mod msprobe;
mod noise;
mod pairing;
#[path = "../support/golden.rs"]
mod recorded;
mod report;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/transcript.rs"]
mod transcript;
mod workspace;
