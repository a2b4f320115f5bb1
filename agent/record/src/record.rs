//! The record of one measured tensor.

use crate::{Kind, MicroStep, Reading, TensorId};

/// One measurement of one tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// The tensor.
    pub tensor: TensorId,
    /// The kind of measurement.
    pub kind: Kind,
    /// The micro-batch of the step; 0 if there is only one.
    pub micro_step: MicroStep,
    /// The measured values; `None` if the hook received no tensor (a module output without gradient).
    pub reading: Option<Reading>,
}
