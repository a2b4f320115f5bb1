//! The config of a capture, for `PrecisionDebugger` and `trainmon.capture`: msprobe's keys and trainmon's own.

mod effective;
mod file;
pub(in crate::config) mod normalise;
mod numbers;

pub use effective::{
    CaptureConfig, CaptureFiles, CaptureLevel, CaptureTask, DataMode, Precision, RiskLevel, Slice, Summary,
    TensorFormat,
};
pub(in crate::config) use file::CaptureFile;
pub use numbers::{NumberRanges, NumberRangesError};
