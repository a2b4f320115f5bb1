//! Which signal a reading belongs to.

crate::named_enum! {
    /// The signal a record carries: what was measured, and when in the step; in the order of the files.
    ///
    /// Its name is msprobe's CSV file prefix where it has one (`mg_direction` goes to its file `other`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Kind: name, from_name {
        /// A module's inputs and outputs, forward.
        Actv = "actv",
        /// The gradients of a module's inputs and outputs.
        ActvGrad = "actv_grad",
        /// A weight gradient before the caller's aggregation (all-reduce, clipping).
        GradUnreduced = "grad_unreduced",
        /// A weight gradient as the optimizer sees it.
        GradReduced = "grad_reduced",
        /// First moment (Adam, `AdamW`).
        ExpAvg = "exp_avg",
        /// Second moment (Adam, `AdamW`).
        ExpAvgSq = "exp_avg_sq",
        /// Largest second moment so far (Adam with amsgrad).
        MaxExpAvgSq = "max_exp_avg_sq",
        /// SGD's and `RMSprop`'s momentum.
        MomentumBuffer = "momentum_buffer",
        /// `RMSprop`'s second moment.
        SquareAvg = "square_avg",
        /// Centred `RMSprop`'s first moment.
        GradAvg = "grad_avg",
        /// Adagrad's sum of squares.
        Sum = "sum",
        /// State of an optimizer that is not known by name: the tensor's name ends with the state's.
        OptimizerState = "optimizer_state",
        /// A parameter just before the optimizer step.
        ParamOrigin = "param_origin",
        /// A parameter just after the optimizer step.
        ParamUpdated = "param_updated",
        /// The change the step made to a parameter.
        Update = "update",
        /// Norm of the change over norm of the parameter before it; one number per parameter.
        UpdateRatio = "update_ratio",
        /// Share of elements whose gradient and first moment agree in sign, 0 to 1; one number per parameter.
        MgDirection = "mg_direction",
        /// Entropy of the attention rows and their largest weight; two numbers per module.
        AttentionHook = "attention_hook",
        /// Stable rank and largest singular value of a linear module's weight; two numbers per module.
        LinearHook = "linear_hook",
        /// Similarity of a router's expert vectors; one number per module.
        MoeRouterWeightHook = "moe_router_weight_hook",
        /// Entropy of a router's choice per token; one number per module.
        MoeRouterLogitHook = "moe_router_logit_hook",
        /// Any tensor that the training's script showed of its own accord.
        Adhoc = "adhoc",
        /// What a collective operation was given, before and after: `all_reduce/dp/pre_0`, `all_reduce/dp/post_0`, by the
        /// place of the argument. The call's number in the step is its `micro_step`.
        Comm = "comm",
        /// Size, time, bandwidths, time waited and number in the group of a collective operation: `all_reduce/dp`. The
        /// call's number in the step is its `micro_step`.
        CommTime = "comm_time",
        /// A number that the training's script tells under a name of its own (`accuracy`): not measured, so that no window,
        /// no rank and no budget leaves it out.
        Scalar = "scalar",
    }
}

impl Kind {
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
