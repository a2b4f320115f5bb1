//! Monitored runs: reads their files, recovers them from a journal, compares two runs, and merges the rows of several ranks.
//! Exports values as TensorBoard events, to Prometheus or over OpenTelemetry. Lists recorded alerts, and applies the rules to a
//! run or another tool's log.

#![forbid(unsafe_code)]

pub mod alerts;
pub mod anomaly;
pub mod compare;
pub mod convert;
pub mod merge;
pub mod recover;
pub mod replay;
pub mod steps;

pub use trainmon_baseline::{NewestRun, directories, newest_of};
