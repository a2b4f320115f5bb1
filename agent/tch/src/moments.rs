//! Optimizer state, for optimizers of any make.

use tch::Tensor;
use trainmon_core::Kind;

/// An optimizer that can show what it keeps per parameter. Implement it for your own optimizer.
pub trait MomentSource {
    /// Calls `visit` for each moment kept for `parameter`, in a fixed order; not at all before its first step.
    /// `kind` says what it is: [`Kind::ExpAvg`], [`Kind::MomentumBuffer`] … ([`Kind::is_moment`]).
    fn visit_moments(&self, parameter: &Tensor, visit: &mut dyn FnMut(Kind, &Tensor));
}
