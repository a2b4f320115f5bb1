//! The options of the shim's optimizers. Numbers and layout must match the shim.

use serde::{Deserialize, Serialize};

/// The kinds of libtorch's optimizers. The numbers must match the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
pub enum OptimizerKind {
    /// Adam.
    Adam = 0,
    /// Adam with decoupled weight decay.
    AdamW = 1,
    /// Stochastic gradient descent, with optional momentum.
    Sgd = 2,
    /// `RMSprop`.
    RmsProp = 3,
    /// Adagrad.
    Adagrad = 4,
}

/// All options of all kinds. Each kind reads its own and ignores the others. The layout must match the shim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[repr(C)]
pub struct GroupOptions {
    /// Learning rate.
    pub lr: f64,
    /// Adam, `AdamW`: decay of the first moment.
    pub beta1: f64,
    /// Adam, `AdamW`: decay of the second moment.
    pub beta2: f64,
    /// All but SGD: added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// SGD, `RMSprop`: momentum.
    pub momentum: f64,
    /// SGD: dampening of the momentum.
    pub dampening: f64,
    /// `RMSprop`: decay of the second moment.
    pub alpha: f64,
    /// Adagrad: decay of the learning rate.
    pub lr_decay: f64,
    /// Adagrad: initial value of the sum.
    pub initial_accumulator: f64,
    /// Adam, `AdamW`: divide by the largest second moment so far.
    pub amsgrad: bool,
    /// SGD: Nesterov's momentum.
    pub nesterov: bool,
    /// `RMSprop`: subtract the mean gradient.
    pub centered: bool,
}
