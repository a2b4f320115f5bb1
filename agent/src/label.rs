//! The record that a measurement becomes.

use trainmon_core::{Kind, MicroStep, Reading, Record, TensorId};

/// The record that a measurement becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The tensor.
    pub tensor: TensorId,
    /// The signal.
    pub kind: Kind,
    /// The micro-batch of the step.
    pub micro_step: MicroStep,
}

impl Label {
    /// The label of a tensor that is measured once per step.
    pub fn new(tensor: TensorId, kind: Kind) -> Self {
        Self { tensor, kind, micro_step: MicroStep(0) }
    }

    /// The record of a reading.
    pub fn with(self, reading: impl Into<Reading>) -> Record {
        let Self { tensor, kind, micro_step } = self;
        Record { tensor, kind, micro_step, reading: Some(reading.into()) }
    }
}
