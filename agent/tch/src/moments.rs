//! Optimizer state, for optimizers of any make.

use tch::Tensor;
use trainmon_agent::core::Kind;

/// An optimizer that can show what it keeps per parameter. Implement it for your own optimizer.
pub trait MomentSource {
    /// Calls `visit` for each moment kept for `parameter`, in a fixed order; not at all before its first step.
    /// `kind` says what it is: [`Kind::ExpAvg`], [`Kind::MomentumBuffer`] … ([`Kind::is_moment`]).
    fn visit_moments(&self, parameter: &Tensor, visit: &mut dyn FnMut(Kind, &Tensor));
}

/// tch's own optimizer hides its state: nothing to show.
impl MomentSource for tch::nn::Optimizer {
    fn visit_moments(&self, _parameter: &Tensor, _visit: &mut dyn FnMut(Kind, &Tensor)) {}
}
