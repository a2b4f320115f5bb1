//! The signals: the tensors measured, and their statistics; part of a config and of a plan.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use smart_default::SmartDefault;

use super::ops::{Op, statistics};
use crate::{Kind, Statistic, StatisticSet};

/// msprobe's threshold for `zeros`.
pub(super) const DEFAULT_EPS: f64 = 1e-8;

/// The signals, each with its statistics; `None` is off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signals {
    /// Weight gradients.
    pub weight_grad: Option<WeightGrad>,
    /// Optimizer moments.
    pub moments: Option<Signal>,
    /// Parameters before and after the step.
    pub param: Option<Signal>,
    /// Module inputs and outputs and their gradients.
    pub activations: Option<Activations>,
    /// The agreement in sign of gradient and first moment.
    pub mg_direction: Option<Signal>,
    /// Each step's change of a parameter and its ratio to the parameter. Keeps a copy of each parameter.
    pub update: Option<Signal>,
}

impl Signals {
    /// The signals of a run without a config file: weight gradients, moments and parameters.
    pub(super) fn usual() -> Self {
        let signal = Signal::default();
        let weight_grad = WeightGrad { signal: signal.clone(), every_micro_batch: false, micro_batches: None };
        let (moments, param) = (Some(signal.clone()), Some(signal));
        Self { weight_grad: Some(weight_grad), moments, param, ..Self::default() }
    }

    /// The statistics of a kind of tensor; `None` if it is not measured, and for kinds that belong to no signal.
    #[inline]
    pub fn of(&self, kind: Kind) -> Option<&Signal> {
        let activations = |wanted: fn(&Activations) -> bool| self.activations.as_ref().filter(|a| wanted(a));
        match kind {
            Kind::Actv => activations(|a| a.forward).map(|a| &a.signal),
            Kind::ActvGrad => activations(|a| a.backward).map(|a| &a.signal),
            Kind::GradUnreduced | Kind::GradReduced => self.weight_grad.as_ref().map(|grad| &grad.signal),
            Kind::ParamOrigin | Kind::ParamUpdated => self.param.as_ref(),
            Kind::Update | Kind::UpdateRatio => self.update.as_ref(),
            Kind::MgDirection => self.mg_direction.as_ref(),
            kind if kind.is_moment() => self.moments.as_ref(),
            _ => None,
        }
    }

    /// The first signal that is on; ad-hoc tensors have its statistics.
    #[inline]
    pub fn first(&self) -> Option<&Signal> {
        let Self { weight_grad, moments, param, activations, mg_direction, update } = self;
        let nested = [weight_grad.as_ref().map(|grad| &grad.signal), activations.as_ref().map(|a| &a.signal)];
        let plain = [moments, param, mg_direction, update].map(Option::as_ref);
        nested.into_iter().chain(plain).flatten().next()
    }

    /// Every signal that is on.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Signal> {
        let Self { weight_grad, moments, param, activations, mg_direction, update } = self;
        let nested = [weight_grad.as_mut().map(|grad| &mut grad.signal), activations.as_mut().map(|a| &mut a.signal)];
        let plain = [moments, param, mg_direction, update].map(Option::as_mut);
        nested.into_iter().chain(plain).flatten()
    }

    /// Switches signals. A signal that was off gets its settings in `configured`. If it is off there too, it gets the statistics
    /// of another signal, or the norm if there is none; `every_module` then says whether all modules are measured.
    pub(super) fn switch(&mut self, switches: SignalSwitches, configured: &Self, every_module: bool) {
        fn set<T: Clone>(now: &mut Option<T>, is_on: Option<bool>, configured: Option<&T>, fresh: impl FnOnce() -> T) {
            match is_on {
                Some(false) => *now = None,
                Some(true) if now.is_none() => *now = Some(configured.cloned().unwrap_or_else(fresh)),
                Some(true) | None => {}
            }
        }
        let template = self.first().or_else(|| configured.first()).cloned();
        let template = template.unwrap_or(Signal { ops: vec![Statistic::Norm], eps: DEFAULT_EPS });
        let signal = || template.clone();
        let SignalSwitches { weight_grad, moments, param, activations, mg_direction, update } = switches;
        set(&mut self.weight_grad, weight_grad, configured.weight_grad.as_ref(), || WeightGrad {
            signal: signal(),
            every_micro_batch: false,
            micro_batches: None,
        });
        set(&mut self.moments, moments, configured.moments.as_ref(), signal);
        set(&mut self.param, param, configured.param.as_ref(), signal);
        set(&mut self.activations, activations, configured.activations.as_ref(), || Activations {
            signal: signal(),
            forward: true,
            backward: true,
            all: every_module,
        });
        set(&mut self.mg_direction, mg_direction, configured.mg_direction.as_ref(), signal);
        set(&mut self.update, update, configured.update.as_ref(), signal);
    }
}

/// Signals that are switched on or off; `None` means unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct SignalSwitches {
    /// Weight gradients.
    pub weight_grad: Option<bool>,
    /// Optimizer moments.
    pub moments: Option<bool>,
    /// Parameters before and after each step.
    pub param: Option<bool>,
    /// Inputs and outputs of modules and their gradients.
    pub activations: Option<bool>,
    /// The share of elements whose gradient and first moment agree in sign.
    pub mg_direction: Option<bool>,
    /// Each step's change of a parameter.
    pub update: Option<bool>,
}

/// The statistics of a monitor in a `TrainerMonitorV2` file, and of a run without a file.
const USUAL_STATISTICS: [Statistic; 5] =
    [Statistic::Min, Statistic::Max, Statistic::Mean, Statistic::Norm, Statistic::Nans];

/// The statistics of one signal, in CSV column order. These are the keys of every monitor of a `TrainerMonitorV2` file; the flat
/// form has different names and defaults for them.
#[derive(Clone, Debug, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Signal {
    /// The statistics, in column order. For complex tensors: of the magnitudes.
    #[schemars(extend("x-msprobe" = "min, max, mean, norm, nans"))]
    #[serde(deserialize_with = "ops")]
    #[schemars(with = "Vec<Op>")]
    #[default(USUAL_STATISTICS.to_vec())]
    pub ops: Vec<Statistic>,
    /// The magnitude below which `zeros` counts an element.
    #[schemars(range(min = 0))]
    #[default(DEFAULT_EPS)]
    pub eps: f64,
}

fn ops<'de, D: Deserializer<'de>>(ops: D) -> Result<Vec<Statistic>, D::Error> {
    Vec::deserialize(ops).map(|ops: Vec<Op>| statistics(&ops, &USUAL_STATISTICS))
}

impl Signal {
    /// The statistics as a set.
    pub fn set(&self) -> StatisticSet {
        self.ops.iter().copied().collect()
    }
}

/// A change of every signal; `None` means unchanged.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SignalChange {
    /// The statistics, in column order; an empty list means the norm.
    #[serde(deserialize_with = "changed_ops")]
    #[schemars(with = "Option<Vec<Op>>")]
    pub ops: Option<Vec<Statistic>>,
    /// The magnitude below which an element counts as zero.
    #[schemars(range(min = 0))]
    pub eps: Option<f64>,
}

fn changed_ops<'de, D: Deserializer<'de>>(ops: D) -> Result<Option<Vec<Statistic>>, D::Error> {
    Option::deserialize(ops).map(|ops: Option<Vec<Op>>| ops.map(|ops| statistics(&ops, &[Statistic::Norm])))
}

impl SignalChange {
    /// The signal after this change.
    pub(super) fn applied_to(&self, signal: &Signal) -> Signal {
        Signal { ops: self.ops.clone().unwrap_or_else(|| signal.ops.clone()), eps: self.eps.unwrap_or(signal.eps) }
    }
}

/// Weight gradients, before and after reduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightGrad {
    /// The statistics.
    #[serde(flatten)]
    pub signal: Signal,
    /// Measure the running sum after every micro-batch, not only the last.
    pub every_micro_batch: bool,
    /// V2's `micro_batch_number` or `grad_acc_steps`, if given; otherwise the caller's value applies.
    pub micro_batches: Option<u32>,
}

/// Module inputs and outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activations {
    /// The statistics.
    #[serde(flatten)]
    pub signal: Signal,
    /// Inputs and outputs.
    pub forward: bool,
    /// Gradients of inputs and outputs.
    pub backward: bool,
    /// Every module, regardless of the targets.
    pub all: bool,
}
