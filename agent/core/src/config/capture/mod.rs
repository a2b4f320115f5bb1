//! The config of a capture: what `PrecisionDebugger` and `trainmon.capture` are given, msprobe's keys and our own.

mod effective;
mod numbers;

pub use effective::{
    CaptureConfig, CaptureLevel, CaptureTask, DEFAULT_CAPTURE_POOL_MIB, DataMode, Precision, RiskLevel, Slice, Summary,
    TensorFormat,
};
pub use numbers::{NumberRanges, NumberRangesError};
