//! Monitored runs: their files, recovered from a journal or read as they lie; two of them compared; their values as TensorBoard's
//! events; what their alerts found.

#![forbid(unsafe_code)]

pub mod anomaly;
pub mod compare;
pub mod convert;
pub mod recover;
mod run;

pub use self::run::{NewestRun, directories, newest_of};
