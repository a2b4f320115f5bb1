//! Access to the state of any optimizer.

use tch::Tensor;
use trainmon_agent::core::Kind;

/// An optimizer that exposes its state per parameter. Implement this trait for your own optimizer.
pub trait MomentSource {
    /// Calls `visit` for each moment of `parameter`, in a fixed order. There are none before the parameter's first
    /// step.
    /// `kind` is the type of the moment, such as [`Kind::ExpAvg`] or [`Kind::MomentumBuffer`] ([`Kind::is_moment`]).
    fn visit_moments(&self, parameter: &Tensor, visit: &mut dyn FnMut(Kind, &Tensor));
}

/// tch's own optimizer hides its state, so it has no moments to visit.
impl MomentSource for tch::nn::Optimizer {
    fn visit_moments(&self, _parameter: &Tensor, _visit: &mut dyn FnMut(Kind, &Tensor)) {}
}
