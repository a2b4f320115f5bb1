//! Monitored runs: their files, recovered from a journal or read as they lie; two of them compared; the rows of
//! several ranks as one model's; their values as TensorBoard's
//! events, in Prometheus or over OpenTelemetry; what their alerts found, and what the rules find in them or in another tool's log.

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
