//! The identity of a record, without its reading.

use trainmon_core::{Kind, MicroStep, Reading, Record, TensorId};

/// The tensor, kind and micro-batch of a record, without its reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The tensor.
    pub tensor: TensorId,
    /// The kind of the record.
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
