//! What ends a step besides its records.

use trainmon_core::GradNorm;

/// What the caller knows about a step and the monitor cannot see.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepFacts {
    /// The training loss.
    pub loss: Option<f64>,
    /// The learning rate the step was made with.
    pub learning_rate: Option<f64>,
    /// Where the step's global gradient norm comes from. A front whose records are a part of it says so: with
    /// [`GradNorm::Unknown`] the step has none until a [`PendingStep`](crate::PendingStep) tells it.
    pub grad_norm: GradNorm,
    /// The global gradient norm as the framework reports it, over the same parameters and before clipping: ours is
    /// checked against it.
    pub framework_grad_norm: Option<f64>,
}
