//! What is measured of tensors: the part of a config and of a plan that says which signals are on.

use serde::{Deserialize, Serialize};

use crate::{Kind, Statistic, StatisticSet};

/// msprobe's threshold for `zeros`.
pub(super) const DEFAULT_EPS: f64 = 1e-8;

/// A signal that can be switched on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalName {
    /// Weight gradients.
    WeightGrad,
    /// Optimizer moments.
    Moments,
    /// Parameters.
    Param,
    /// Module inputs and outputs.
    Activations,
    /// Agreement of gradient and first moment.
    MgDirection,
    /// Updates.
    Update,
}

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
    /// Agreement in sign of gradient and first moment.
    pub mg_direction: Option<Signal>,
    /// The change each step makes to a parameter, and its ratio to the parameter. Keeps a copy of each parameter.
    pub update: Option<Signal>,
}

impl Signals {
    /// What is measured of a kind of tensor; `None` if nothing is, and for kinds that belong to no signal.
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

    /// The first signal that is on: whose statistics ad-hoc tensors have.
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

    /// Switches a signal. One that was off is then what `configured` says of it; if that has it off too, it has the
    /// statistics of `template`, and `every_module` says whether activations are those of all modules.
    pub(super) fn switch(
        &mut self,
        name: SignalName,
        is_on: bool,
        configured: &Self,
        template: &Signal,
        every_module: bool,
    ) {
        #[inline]
        fn set<T: Clone>(now: &mut Option<T>, is_on: bool, configured: Option<&T>, fresh: impl FnOnce() -> T) {
            match (is_on, &now) {
                (false, _) => *now = None,
                (true, Some(_)) => {}
                (true, None) => *now = Some(configured.cloned().unwrap_or_else(fresh)),
            }
        }
        let signal = || template.clone();
        match name {
            SignalName::WeightGrad => set(&mut self.weight_grad, is_on, configured.weight_grad.as_ref(), || {
                WeightGrad { signal: signal(), every_micro_batch: false, micro_batches: None }
            }),
            SignalName::Moments => set(&mut self.moments, is_on, configured.moments.as_ref(), signal),
            SignalName::Param => set(&mut self.param, is_on, configured.param.as_ref(), signal),
            SignalName::Activations => {
                let fresh = || Activations { signal: signal(), forward: true, backward: true, all: every_module };
                set(&mut self.activations, is_on, configured.activations.as_ref(), fresh);
            }
            SignalName::MgDirection => set(&mut self.mg_direction, is_on, configured.mg_direction.as_ref(), signal),
            SignalName::Update => set(&mut self.update, is_on, configured.update.as_ref(), signal),
        }
    }
}

/// What is measured of one signal, in CSV column order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// The statistics, in the order asked for, without repetition.
    pub ops: Vec<Statistic>,
    /// The magnitude below which an element counts as zero.
    pub eps: f64,
}

impl Signal {
    /// The statistics as a set.
    pub fn set(&self) -> StatisticSet {
        self.ops.iter().copied().collect()
    }
}

/// Weight gradients, before and after aggregation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightGrad {
    /// What is measured.
    #[serde(flatten)]
    pub signal: Signal,
    /// Measure the running sum after every micro-batch, not only the last.
    pub every_micro_batch: bool,
    /// V2's `micro_batch_number` or `grad_acc_steps`, if the file gives it; the caller's value otherwise.
    pub micro_batches: Option<u32>,
}

/// Module inputs and outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activations {
    /// What is measured.
    #[serde(flatten)]
    pub signal: Signal,
    /// Inputs and outputs.
    pub forward: bool,
    /// Gradients of inputs and outputs.
    pub backward: bool,
    /// Every module, whatever the targets say.
    pub all: bool,
}
