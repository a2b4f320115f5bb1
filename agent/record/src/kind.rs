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
    /// State of an optimizer that is not known by name: the tensor's name ends with the state's.
    OptimizerState,
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
    /// Entropy of the attention rows and their largest weight; two numbers per module.
    AttentionHook,
    /// Stable rank and largest singular value of a linear module's weight; two numbers per module.
    LinearHook,
    /// Similarity of a router's expert vectors; one number per module.
    MoeRouterWeightHook,
    /// Entropy of a router's choice per token; one number per module.
    MoeRouterLogitHook,
    /// Any tensor that the training's script showed of its own accord.
    Adhoc,
    /// What a collective operation was given, before and after: `all_reduce/dp/pre_0`, `all_reduce/dp/post_0`, by the place of
    /// the argument. The call's number in the step is its `micro_step`.
    Comm,
    /// Size, time, bandwidths, time waited and number in the group of a collective operation: `all_reduce/dp`. The call's
    /// number in the step is its `micro_step`.
    CommTime,
    /// A number that the training's script tells under a name of its own (`accuracy`): not measured, so that no window, no
    /// rank and no budget leaves it out.
    Scalar,
}

impl Kind {
    /// Every kind, in file order.
    pub const ALL: [Self; 25] = [
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
        Self::OptimizerState,
        Self::ParamOrigin,
        Self::ParamUpdated,
        Self::Update,
        Self::UpdateRatio,
        Self::MgDirection,
        Self::AttentionHook,
        Self::LinearHook,
        Self::MoeRouterWeightHook,
        Self::MoeRouterLogitHook,
        Self::Adhoc,
        Self::Comm,
        Self::CommTime,
        Self::Scalar,
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
            Self::OptimizerState => "optimizer_state",
            Self::ParamOrigin => "param_origin",
            Self::ParamUpdated => "param_updated",
            Self::Update => "update",
            Self::UpdateRatio => "update_ratio",
            Self::MgDirection => "mg_direction",
            Self::AttentionHook => "attention_hook",
            Self::LinearHook => "linear_hook",
            Self::MoeRouterWeightHook => "moe_router_weight_hook",
            Self::MoeRouterLogitHook => "moe_router_logit_hook",
            Self::Adhoc => "adhoc",
            Self::Comm => "comm",
            Self::CommTime => "comm_time",
            Self::Scalar => "scalar",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The names of the plain numbers a record of this kind carries instead of a tensor's statistics; empty for a
    /// tensor. [`Reading::values`](crate::Reading::values) has the numbers.
    pub const fn value_columns(self) -> &'static [&'static str] {
        match self {
            Self::UpdateRatio => &["update_ratio"],
            Self::AttentionHook => &["entropy", "softmax_max"],
            Self::LinearHook => &["sr", "kernel_norm"],
            Self::MoeRouterWeightHook => &["router_weight_similarity"],
            Self::MoeRouterLogitHook => &["per_token_expert_entropy"],
            Self::CommTime => &["bytes", "seconds", "algbw", "busbw", "waited", "sequence"],
            Self::Scalar => &["value"],
            _ => &[],
        }
    }

    /// Whether this is a feature of a module (msprobe's L2 features): computed by the front.
    pub const fn is_feature(self) -> bool {
        matches!(self, Self::AttentionHook | Self::LinearHook | Self::MoeRouterWeightHook | Self::MoeRouterLogitHook)
    }

    /// Whether a step may have several records of one tensor, one for each call of a collective operation:
    /// [`StepCalls`](crate::StepCalls) puts them together.
    pub const fn is_of_calls(self) -> bool {
        matches!(self, Self::Comm | Self::CommTime)
    }

    /// Whether this is a parameter's gradient, before or after it is aggregated.
    pub const fn is_gradient(self) -> bool {
        matches!(self, Self::GradUnreduced | Self::GradReduced)
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
                | Self::OptimizerState
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
