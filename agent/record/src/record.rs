//! What is passed on of one measured tensor.

use crate::{Kind, MicroStep, Reading, TensorId};

/// One tensor, measured once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Which tensor.
    pub tensor: TensorId,
    /// Which signal.
    pub kind: Kind,
    /// Which micro-batch of the step; 0 where there is but one.
    pub micro_step: MicroStep,
    /// What was found; `None` if the hook was given no tensor (a module output without gradient).
    pub reading: Option<Reading>,
}
