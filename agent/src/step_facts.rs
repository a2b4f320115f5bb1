//! The caller's values for a step besides its records.

use trainmon_core::GradNorm;

/// The values of a step that only the caller has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepFacts {
    /// The training loss.
    pub loss: Option<f64>,
    /// The learning rate of the step.
    pub learning_rate: Option<f64>,
    /// The origin of the step's global gradient norm. A front whose records contain only a part of the gradients passes
    /// [`GradNorm::Unknown`]: the step then has no norm until a [`PendingStep`](crate::PendingStep) sets it.
    pub grad_norm: GradNorm,
    /// The global gradient norm that the framework reports, over the same parameters and before clipping. The monitor checks
    /// its own norm against it.
    pub framework_grad_norm: Option<f64>,
}
