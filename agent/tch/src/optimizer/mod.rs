//! An optimizer on top of libtorch's, like tch's, whose state you can read, save and load.

mod checkpoint;
mod clip;
mod error;
mod kind;

use std::sync::{Arc, Mutex, PoisonError};

use tch::nn::VarStore;
use tch::{Tensor, nn};
use trainmon_agent::core::Kind;

pub use error::{CheckpointError, OptimizerError};
pub use kind::{Adagrad, OptimizerConfig, Settings};

use crate::ffi::{DEFAULTS, RawOptimizer};
pub use crate::ffi::{GroupOptions, OptimizerKind};
use crate::moments::MomentSource;
use crate::names::{self, NamedParameter};

/// Runs gradient descent over a `VarStore`. Every step is bitwise equal to that of `tch::nn::Optimizer`.
///
/// Variables created after the optimizer join it at its next step, as in tch. `Path::set_group` sets their groups.
pub struct Optimizer {
    raw: RawOptimizer,
    kind: OptimizerKind,
    variables: Arc<Mutex<nn::Variables>>,
    parameters: Vec<NamedParameter>,
}

impl std::fmt::Debug for Optimizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Optimizer")
            .field("kind", &self.kind)
            .field("parameters", &self.parameters.len())
            .finish_non_exhaustive()
    }
}

fn doing(doing: &'static str) -> impl FnOnce(String) -> OptimizerError {
    move |message| OptimizerError::Torch { doing, message }
}

impl Optimizer {
    /// Creates an optimizer for the trainable variables of `variables`: `Optimizer::new(&tch::nn::AdamW::default(),
    /// &vs, 1e-3)`.
    ///
    /// # Errors
    /// libtorch rejects the options, for example a negative learning rate.
    pub fn new(
        config: &impl OptimizerConfig,
        variables: &VarStore,
        learning_rate: f64,
    ) -> Result<Self, OptimizerError> {
        let Settings { kind, options } = config.settings(learning_rate);
        let raw = RawOptimizer::new(kind, &options).map_err(doing("cannot create the optimizer"))?;
        let variables = Arc::clone(&variables.variables_);
        let mut optimizer = Self { raw, kind, variables, parameters: Vec::new() };
        optimizer.add_new_variables()?;
        Ok(optimizer)
    }

    /// The kind of optimizer.
    pub fn kind(&self) -> OptimizerKind {
        self.kind
    }

    fn add_new_variables(&mut self) -> Result<(), OptimizerError> {
        let variables = self.variables.lock().unwrap_or_else(PoisonError::into_inner);
        if variables.trainable_variables.len() == self.parameters.len() {
            return Ok(());
        }
        for parameter in names::in_creation_order(&variables).into_iter().skip(self.parameters.len()) {
            self.raw.add(&parameter.tensor, parameter.group).map_err(doing("cannot add a parameter"))?;
            self.parameters.push(parameter);
        }
        Ok(())
    }

    /// Clears every gradient: it becomes undefined, not zero, as by default in libtorch.
    ///
    /// # Errors
    /// libtorch reports an error.
    pub fn zero_grad(&mut self) -> Result<(), OptimizerError> {
        self.add_new_variables()?;
        self.raw.zero_grad().map_err(doing("cannot clear the gradients"))
    }

    /// Makes one step along the gradients. Parameters without a gradient stay unchanged.
    ///
    /// # Errors
    /// libtorch reports an error; some parameters may already have changed.
    pub fn step(&mut self) -> Result<(), OptimizerError> {
        self.add_new_variables()?;
        self.raw.step().map_err(doing("the optimizer step failed"))
    }

    /// Clears the gradients, runs the backward pass, and makes a step.
    ///
    /// # Errors
    /// Those of [`step`](Self::step), or the backward pass fails.
    pub fn backward_step(&mut self, loss: &Tensor) -> Result<(), OptimizerError> {
        self.backward(loss)?;
        self.step()
    }

    /// Like [`backward_step`](Self::backward_step), but clamps each gradient element to `-max ..= max` before the step.
    ///
    /// # Errors
    /// Those of [`backward_step`](Self::backward_step).
    pub fn backward_step_clip(&mut self, loss: &Tensor, max: f64) -> Result<(), OptimizerError> {
        self.backward(loss)?;
        self.clip_grad_value(max)?;
        self.step()
    }

    /// Like [`backward_step`](Self::backward_step), but limits the global gradient norm to `max` before the step.
    ///
    /// # Errors
    /// Those of [`backward_step`](Self::backward_step).
    pub fn backward_step_clip_norm(&mut self, loss: &Tensor, max: f64) -> Result<(), OptimizerError> {
        self.backward(loss)?;
        self.clip_grad_norm(max)?;
        self.step()
    }

    fn backward(&mut self, loss: &Tensor) -> Result<(), OptimizerError> {
        self.zero_grad()?;
        loss.f_backward().map_err(|why| doing("the backward pass failed")(why.to_string()))
    }

    /// The options of one parameter group.
    ///
    /// # Errors
    /// The group does not exist.
    pub fn group_options(&self, group: usize) -> Result<GroupOptions, OptimizerError> {
        self.check_group(group)?;
        self.raw.options(group).map_err(doing("cannot read the options"))
    }

    /// Changes the options of every group, including groups added later.
    ///
    /// # Errors
    /// libtorch reports an error.
    pub fn change_options(&mut self, change: impl Fn(&mut GroupOptions)) -> Result<(), OptimizerError> {
        for group in (0..self.raw.groups()).chain([DEFAULTS]) {
            self.change(group, &change)?;
        }
        Ok(())
    }

    /// Changes the options of one group.
    ///
    /// # Errors
    /// The group does not exist.
    pub fn change_group_options(
        &mut self,
        group: usize,
        change: impl Fn(&mut GroupOptions),
    ) -> Result<(), OptimizerError> {
        self.check_group(group)?;
        self.change(group, &change)
    }

    fn change(&mut self, group: usize, change: &impl Fn(&mut GroupOptions)) -> Result<(), OptimizerError> {
        let mut options = self.raw.options(group).map_err(doing("cannot read the options"))?;
        change(&mut options);
        self.raw.set_options(group, &options).map_err(doing("cannot change the options"))
    }

    fn check_group(&self, group: usize) -> Result<(), OptimizerError> {
        let groups = self.raw.groups();
        if group < groups { Ok(()) } else { Err(OptimizerError::NoSuchGroup { group, groups }) }
    }

    /// The learning rate of the first group.
    ///
    /// # Errors
    /// libtorch reports an error.
    pub fn learning_rate(&self) -> Result<f64, OptimizerError> {
        Ok(self.group_options(0)?.lr)
    }

    /// Sets the learning rate of every group.
    ///
    /// # Errors
    /// libtorch reports an error.
    pub fn set_lr(&mut self, lr: f64) -> Result<(), OptimizerError> {
        self.change_options(|options| options.lr = lr)
    }

    /// Sets the learning rate of one group.
    ///
    /// # Errors
    /// The group does not exist.
    pub fn set_lr_group(&mut self, group: usize, lr: f64) -> Result<(), OptimizerError> {
        self.change_group_options(group, |options| options.lr = lr)
    }

    /// Sets the weight decay of every group.
    ///
    /// # Errors
    /// libtorch reports an error.
    pub fn set_weight_decay(&mut self, weight_decay: f64) -> Result<(), OptimizerError> {
        self.change_options(|options| options.weight_decay = weight_decay)
    }

    /// Sets the weight decay of one group.
    ///
    /// # Errors
    /// The group does not exist.
    pub fn set_weight_decay_group(&mut self, group: usize, weight_decay: f64) -> Result<(), OptimizerError> {
        self.change_group_options(group, |options| options.weight_decay = weight_decay)
    }

    /// Sets the momentum of every group: the first beta of Adam and `AdamW`, as in tch. Adagrad has none.
    ///
    /// # Errors
    /// libtorch reports an error.
    pub fn set_momentum(&mut self, momentum: f64) -> Result<(), OptimizerError> {
        self.change_options(|options| (options.beta1, options.momentum) = (momentum, momentum))
    }

    /// Sets the momentum of one group, like [`set_momentum`](Self::set_momentum).
    ///
    /// # Errors
    /// The group does not exist.
    pub fn set_momentum_group(&mut self, group: usize, momentum: f64) -> Result<(), OptimizerError> {
        self.change_group_options(group, |options| (options.beta1, options.momentum) = (momentum, momentum))
    }

    /// The trainable variables, in creation order.
    pub fn trainable_variables(&self) -> Vec<Tensor> {
        self.parameters.iter().map(|parameter| parameter.tensor.shallow_clone()).collect()
    }

    /// Returns a moment of one parameter, which shares the state's memory; `None` before the parameter's first step, or
    /// if this optimizer keeps no such moment.
    ///
    /// # Errors
    /// libtorch reports an error.
    pub fn moment(&self, parameter: &Tensor, kind: Kind) -> Result<Option<Tensor>, OptimizerError> {
        let Some(moment) = self.kind.moments().iter().find(|moment| moment.kind == kind) else { return Ok(None) };
        self.raw
            .with_moment(parameter, moment.slot, |tensor| tensor.as_tensor().shallow_clone())
            .map_err(doing("cannot read the state"))
    }

    /// The number of steps of a parameter; `None` before its first step, and for SGD, which does not count steps.
    ///
    /// # Errors
    /// libtorch reports an error.
    pub fn steps_taken(&self, parameter: &Tensor) -> Result<Option<i64>, OptimizerError> {
        self.raw.step_count(parameter).map_err(doing("cannot read the state"))
    }
}

impl MomentSource for Optimizer {
    fn visit_moments(&self, parameter: &Tensor, visit: &mut dyn FnMut(Kind, &Tensor)) {
        for moment in self.kind.moments() {
            let visited =
                self.raw.with_moment(parameter, moment.slot, |tensor| visit(moment.kind, &tensor.as_tensor()));
            // A moment that cannot be read is not measured.
            drop(visited);
        }
    }
}
