//! Which signal a reading belongs to.

use std::fmt;

/// The signal a record carries: what was measured, and when in the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A module's inputs and outputs, forward.
    Actv,
    /// The gradients of a module's inputs and outputs.
    ActvGrad,
    /// A weight gradient before the caller's aggregation (all-reduce, clipping).
    GradUnreduced,
    /// A weight gradient as the optimizer sees it.
    GradReduced,
    /// First moment (Adam, `AdamW`).
    ExpAvg,
    /// Second moment (Adam, `AdamW`).
    ExpAvgSq,
    /// Largest second moment so far (Adam with amsgrad).
    MaxExpAvgSq,
    /// SGD's and `RMSprop`'s momentum.
    MomentumBuffer,
    /// `RMSprop`'s second moment.
    SquareAvg,
    /// Centred `RMSprop`'s first moment.
    GradAvg,
    /// Adagrad's sum of squares.
    Sum,
    /// A parameter just before the optimizer step.
    ParamOrigin,
    /// A parameter just after the optimizer step.
    ParamUpdated,
    /// The change the step made to a parameter.
    Update,
    /// Norm of the change over norm of the parameter before it; one number per parameter.
    UpdateRatio,
    /// Share of elements whose gradient and first moment agree in sign, 0 to 1; one number per parameter.
    MgDirection,
}

impl Kind {
    /// Every kind, in file order.
    pub const ALL: [Self; 16] = [
        Self::Actv,
        Self::ActvGrad,
        Self::GradUnreduced,
        Self::GradReduced,
        Self::ExpAvg,
        Self::ExpAvgSq,
        Self::MaxExpAvgSq,
        Self::MomentumBuffer,
        Self::SquareAvg,
        Self::GradAvg,
        Self::Sum,
        Self::ParamOrigin,
        Self::ParamUpdated,
        Self::Update,
        Self::UpdateRatio,
        Self::MgDirection,
    ];

    /// The name: msprobe's CSV file prefix where it has one (`mg_direction` goes to its file `other`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Actv => "actv",
            Self::ActvGrad => "actv_grad",
            Self::GradUnreduced => "grad_unreduced",
            Self::GradReduced => "grad_reduced",
            Self::ExpAvg => "exp_avg",
            Self::ExpAvgSq => "exp_avg_sq",
            Self::MaxExpAvgSq => "max_exp_avg_sq",
            Self::MomentumBuffer => "momentum_buffer",
            Self::SquareAvg => "square_avg",
            Self::GradAvg => "grad_avg",
            Self::Sum => "sum",
            Self::ParamOrigin => "param_origin",
            Self::ParamUpdated => "param_updated",
            Self::Update => "update",
            Self::UpdateRatio => "update_ratio",
            Self::MgDirection => "mg_direction",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether this is optimizer state.
    pub const fn is_moment(self) -> bool {
        matches!(
            self,
            Self::ExpAvg
                | Self::ExpAvgSq
                | Self::MaxExpAvgSq
                | Self::MomentumBuffer
                | Self::SquareAvg
                | Self::GradAvg
                | Self::Sum
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
