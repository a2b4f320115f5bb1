//! The optimizers of libtorch, their options, and the moments that each keeps per parameter.

use trainmon_agent::core::Kind;

use crate::ffi::{GroupOptions, Moment, OptimizerKind};

impl OptimizerKind {
    /// Returns the name in checkpoints and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adam => "adam",
            Self::AdamW => "adamw",
            Self::Sgd => "sgd",
            Self::RmsProp => "rmsprop",
            Self::Adagrad => "adagrad",
        }
    }

    /// Whether this kind counts the steps of each parameter.
    pub(crate) const fn counts_steps(self) -> bool {
        !matches!(self, Self::Sgd)
    }

    /// Returns the moments that this kind may keep per parameter.
    pub(crate) const fn moments(self) -> &'static [MomentKind] {
        match self {
            Self::Adam | Self::AdamW => &[MomentKind::EXP_AVG, MomentKind::EXP_AVG_SQ, MomentKind::MAX_EXP_AVG_SQ],
            Self::Sgd => &[MomentKind::MOMENTUM_BUFFER],
            Self::RmsProp => &[MomentKind::SQUARE_AVG, MomentKind::MOMENTUM_BUFFER, MomentKind::GRAD_AVG],
            Self::Adagrad => &[MomentKind::SUM],
        }
    }
}

impl GroupOptions {
    /// Whether a parameter that was stepped with these options must have this moment.
    pub(crate) fn needs(&self, moment: Kind) -> bool {
        match moment {
            Kind::MaxExpAvgSq => self.amsgrad,
            // SGD and RMSprop create the buffer only if they have momentum.
            Kind::MomentumBuffer => self.momentum > 0.0,
            Kind::GradAvg => self.centered,
            _ => true,
        }
    }
}

/// A moment, as trainmon's kind and as the shim's slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MomentKind {
    pub(crate) kind: Kind,
    pub(crate) slot: Moment,
}

impl MomentKind {
    const EXP_AVG: Self = Self { kind: Kind::ExpAvg, slot: Moment::ExpAvg };
    const EXP_AVG_SQ: Self = Self { kind: Kind::ExpAvgSq, slot: Moment::ExpAvgSq };
    const MAX_EXP_AVG_SQ: Self = Self { kind: Kind::MaxExpAvgSq, slot: Moment::MaxExpAvgSq };
    const MOMENTUM_BUFFER: Self = Self { kind: Kind::MomentumBuffer, slot: Moment::MomentumBuffer };
    const SQUARE_AVG: Self = Self { kind: Kind::SquareAvg, slot: Moment::SquareAvg };
    const GRAD_AVG: Self = Self { kind: Kind::GradAvg, slot: Moment::GradAvg };
    const SUM: Self = Self { kind: Kind::Sum, slot: Moment::Sum };
}

/// The kind and the options of a new optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The kind of optimizer.
    pub kind: OptimizerKind,
    /// The options of every parameter group.
    pub options: GroupOptions,
}

/// Optimizer configurations: tch's own, and [`Adagrad`].
pub trait OptimizerConfig {
    /// Returns the settings with this learning rate.
    fn settings(&self, learning_rate: f64) -> Settings;
}

impl OptimizerConfig for tch::nn::Adam {
    fn settings(&self, lr: f64) -> Settings {
        let Self { beta1, beta2, wd: weight_decay, eps, amsgrad } = *self;
        let options = GroupOptions { lr, beta1, beta2, eps, weight_decay, amsgrad, ..GroupOptions::default() };
        Settings { kind: OptimizerKind::Adam, options }
    }
}

impl OptimizerConfig for tch::nn::AdamW {
    fn settings(&self, lr: f64) -> Settings {
        let Self { beta1, beta2, wd: weight_decay, eps, amsgrad } = *self;
        let options = GroupOptions { lr, beta1, beta2, eps, weight_decay, amsgrad, ..GroupOptions::default() };
        Settings { kind: OptimizerKind::AdamW, options }
    }
}

impl OptimizerConfig for tch::nn::Sgd {
    fn settings(&self, lr: f64) -> Settings {
        let Self { momentum, dampening, wd: weight_decay, nesterov } = *self;
        let options = GroupOptions { lr, weight_decay, momentum, dampening, nesterov, ..GroupOptions::default() };
        Settings { kind: OptimizerKind::Sgd, options }
    }
}

impl OptimizerConfig for tch::nn::RmsProp {
    fn settings(&self, lr: f64) -> Settings {
        let Self { alpha, eps, wd: weight_decay, momentum, centered } = *self;
        let options = GroupOptions { lr, eps, weight_decay, momentum, alpha, centered, ..GroupOptions::default() };
        Settings { kind: OptimizerKind::RmsProp, options }
    }
}

/// Adagrad, which tch lacks. The defaults are torch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    /// Decay of the learning rate.
    pub lr_decay: f64,
    /// Weight decay.
    pub wd: f64,
    /// The initial value of the sum.
    pub initial_accumulator: f64,
    /// Added to the denominator.
    pub eps: f64,
}

impl Default for Adagrad {
    fn default() -> Self {
        Self { lr_decay: 0.0, wd: 0.0, initial_accumulator: 0.0, eps: 1e-10 }
    }
}

impl OptimizerConfig for Adagrad {
    fn settings(&self, lr: f64) -> Settings {
        let Self { lr_decay, wd: weight_decay, initial_accumulator, eps } = *self;
        let options = GroupOptions { lr, eps, weight_decay, lr_decay, initial_accumulator, ..GroupOptions::default() };
        Settings { kind: OptimizerKind::Adagrad, options }
    }
}
