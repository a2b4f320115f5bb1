//! The kinds of records.

crate::named_enum! {
    /// The kind of a record: what was measured, and when in the step. In the order of the files.
    ///
    /// Its name is msprobe's CSV file prefix if there is one (`mg_direction` goes to msprobe's file `other`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Kind: name, from_name {
        /// Inputs and outputs of a module in the forward pass.
        Actv = "actv",
        /// Gradients of a module's inputs and outputs.
        ActvGrad = "actv_grad",
        /// A weight gradient before the caller's reduction (all-reduce, clipping).
        GradUnreduced = "grad_unreduced",
        /// A weight gradient as the optimizer receives it.
        GradReduced = "grad_reduced",
        /// First moment (Adam, `AdamW`).
        ExpAvg = "exp_avg",
        /// Second moment (Adam, `AdamW`).
        ExpAvgSq = "exp_avg_sq",
        /// The largest second moment so far (Adam with amsgrad).
        MaxExpAvgSq = "max_exp_avg_sq",
        /// The momentum of SGD and `RMSprop`.
        MomentumBuffer = "momentum_buffer",
        /// The second moment of `RMSprop`.
        SquareAvg = "square_avg",
        /// The first moment of centred `RMSprop`.
        GradAvg = "grad_avg",
        /// The sum of squares of Adagrad.
        Sum = "sum",
        /// The state of an unknown optimizer. The tensor's name ends with the state's name.
        OptimizerState = "optimizer_state",
        /// A parameter just before the optimizer step.
        ParamOrigin = "param_origin",
        /// A parameter just after the optimizer step.
        ParamUpdated = "param_updated",
        /// The change of a parameter in the step.
        Update = "update",
        /// The norm of the change divided by the norm of the parameter before it. One number per parameter.
        UpdateRatio = "update_ratio",
        /// The share of elements whose gradient and first moment have the same sign, 0 to 1. One number per parameter.
        MgDirection = "mg_direction",
        /// The entropy of the attention rows and their largest weight. Two numbers per module.
        AttentionHook = "attention_hook",
        /// The stable rank and the largest singular value of a linear module's weight. Two numbers per module.
        LinearHook = "linear_hook",
        /// The similarity of a router's expert vectors. One number per module.
        MoeRouterWeightHook = "moe_router_weight_hook",
        /// The entropy of a router's choice per token. One number per module.
        MoeRouterLogitHook = "moe_router_logit_hook",
        /// A tensor that the training script passes to trainmon.
        Adhoc = "adhoc",
        /// The tensors of a collective operation before and after it: `all_reduce/dp/pre_0`, `all_reduce/dp/post_0`,
        /// numbered by argument. `micro_step` is the number of the call in the step.
        Comm = "comm",
        /// The size, time, bandwidths, wait time and sequence number of a collective operation: `all_reduce/dp`.
        /// `micro_step` is the number of the call in the step.
        CommTime = "comm_time",
        /// A number that the training script logs under its own name (`accuracy`). It is not measured, so windows, rank
        /// selection and sampling do not affect it.
        Scalar = "scalar",
    }
}

impl Kind {
    /// The names of the plain numbers that a record of this kind has instead of a tensor's statistics; empty for a
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

    /// Whether this is a feature of a module (msprobe's L2 features), computed by the front.
    pub const fn is_feature(self) -> bool {
        matches!(self, Self::AttentionHook | Self::LinearHook | Self::MoeRouterWeightHook | Self::MoeRouterLogitHook)
    }

    /// Whether a step may have several records of one tensor, one for each call of a collective operation.
    /// [`StepCalls`](crate::StepCalls) combines them.
    pub const fn is_of_calls(self) -> bool {
        matches!(self, Self::Comm | Self::CommTime)
    }

    /// Whether this is a parameter's gradient, before or after reduction.
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
