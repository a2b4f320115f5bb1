//! The watch of a training loop: hooks, the wrapped optimizer step, watched modules.

mod builder;
mod gradients;
mod module;
mod observer;
mod on_demand;
mod parameter;
mod shared;
mod site;
mod step;
mod update;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tch::Tensor;
use trainmon_agent::{Monitor, Report, StepFacts};

pub use builder::WatchBuilder;
pub use module::{Watched, WatchedT};
pub use observer::Observer;

use crate::capture::CaptureOptions;
use crate::moments::MomentSource;
use crate::optimizer::{Optimizer, OptimizerError};
use module::Gauge;
use on_demand::OnDemand;
use parameter::Parameters;
use shared::Shared;

/// An error of [`WatchBuilder::build`].
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The builder has no model.
    #[error("the watch has no model: call `model(&vs)` before `build()`")]
    NoModel,
    /// libtorch rejected a gradient hook.
    #[error("cannot hook the gradient of `{parameter}`: {message}")]
    Hook {
        /// The parameter's name.
        parameter: String,
        /// libtorch's message.
        message: String,
    },
}

/// Watches a training loop. Build it after the model, and call [`step`](Self::step) instead of the optimizer's step.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tch::{nn, Device};
/// # let config = trainmon_agent::core::config::Config::default();
/// use trainmon_tch::{Monitor, Optimizer, Watch};
///
/// let monitor = Monitor::start(config, trainmon_agent::Options::default())?;
/// let vs = nn::VarStore::new(Device::Cpu);
/// let net = nn::linear(vs.root() / "head", 8, 8, nn::LinearConfig::default());
/// let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-3)?;
/// let mut watch = Watch::builder(monitor).model(&vs).grad_acc_steps(2).build()?;
/// let net = watch.module("head", net);
/// // Run forward and backward twice, then:
/// watch.loss(0.5);
/// watch.step(&mut optimizer)?;
/// optimizer.zero_grad()?;
/// watch.finish();
/// # Ok(()) }
/// ```
///
/// A watch never changes the training's numbers, and its own failures never reach the loop. Dropping it removes its
/// hooks; clones of the monitor stay valid.
pub struct Watch {
    /// Declared first, so that it is dropped before the fields that report to it.
    captures: OnDemand,
    parameters: Parameters,
    /// The version of the plan that selected the parameters.
    plan_version: u64,
    observer: Observer,
    facts: StepFacts,
    shared: Arc<Shared>,
}

impl Watch {
    /// Returns a builder for a watch that reports to `monitor`.
    pub fn builder<'a>(monitor: Monitor) -> WatchBuilder<'a> {
        WatchBuilder::new(monitor)
    }

    fn new(shared: Arc<Shared>, parameters: Parameters, options: CaptureOptions) -> Self {
        let observer = Observer::new(Arc::clone(&shared));
        let plan_version = shared.monitor.plan_version();
        let captures = OnDemand::new(shared.monitor.clone(), options);
        Self { captures, parameters, plan_version, observer, facts: StepFacts::default(), shared }
    }

    /// The monitor that receives the measurements.
    pub fn monitor(&self) -> &Monitor {
        &self.shared.monitor
    }

    /// Wraps a module of the first model. If the config requests a module of this name, its input, its output and their
    /// gradients are measured.
    pub fn module<M: tch::nn::Module>(&self, name: &str, module: M) -> Watched<M> {
        self.module_of(0, name, module)
    }

    /// Like [`module`](Self::module), for the model of this virtual-pipeline stage.
    pub fn module_of<M: tch::nn::Module>(&self, vpp_stage: u32, name: &str, module: M) -> Watched<M> {
        Watched::new(module, Gauge::new(&self.shared, name, vpp_stage))
    }

    /// Like [`module`](Self::module), for a module with a train flag.
    pub fn module_t<M: tch::nn::ModuleT>(&self, name: &str, module: M) -> WatchedT<M> {
        self.module_t_of(0, name, module)
    }

    /// Like [`module_t`](Self::module_t), for the model of this virtual-pipeline stage.
    pub fn module_t_of<M: tch::nn::ModuleT>(&self, vpp_stage: u32, name: &str, module: M) -> WatchedT<M> {
        WatchedT::new(module, Gauge::new(&self.shared, name, vpp_stage))
    }

    /// Measures any tensor of the forward pass by name; see [`Observer::observe`].
    pub fn observe(&self, name: &str, tensor: &Tensor) {
        self.observer.observe(name, tensor);
    }

    /// Returns a handle that a model or closure can own, so that it does not borrow the watch.
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// Sets the loss of the current step.
    pub fn loss(&mut self, loss: f64) {
        self.facts.loss = Some(loss);
    }

    /// Sets the learning rate of the current step. By default, [`step`](Self::step) reads it from the optimizer.
    pub fn learning_rate(&mut self, learning_rate: f64) {
        self.facts.learning_rate = Some(learning_rate);
    }

    /// Records a custom number of the current step; see [`Monitor::scalar`].
    pub fn scalar(&self, name: &str, value: f64) {
        self.shared.monitor.guard("scalar", || self.shared.monitor.scalar(name, value));
    }

    /// Makes the optimizer's step, measures the configured signals before and after it, and ends the monitor's step.
    ///
    /// # Errors
    /// The optimizer's step fails. The monitor's step is then skipped, as with [`skip_step`](Self::skip_step).
    pub fn step(&mut self, optimizer: &mut Optimizer) -> Result<(), OptimizerError> {
        if self.facts.learning_rate.is_none() {
            self.facts.learning_rate = optimizer.learning_rate().ok();
        }
        self.measure_before(optimizer);
        if let Err(error) = optimizer.step() {
            self.skip_step();
            return Err(error);
        }
        self.measure_after(optimizer);
        Ok(())
    }

    /// Like [`step`](Self::step), for any optimizer: `watch.step_with(&mut optimizer, |optimizer| optimizer.step())`.
    /// Implement [`MomentSource`] for your own optimizer. tch's optimizer implements it without any moments.
    pub fn step_with<O: MomentSource, R>(&mut self, optimizer: &mut O, step: impl FnOnce(&mut O) -> R) -> R {
        self.measure_before(optimizer);
        let result = step(optimizer);
        self.measure_after(optimizer);
        result
    }

    /// Replaces [`step`](Self::step) when the optimizer skips a step, for example because a loss scaler found an
    /// overflow. The step's measurements are discarded and counted as not sampled; the next attempt has the same
    /// number.
    pub fn skip_step(&mut self) {
        let Self { shared, parameters, captures, .. } = self;
        self.facts = StepFacts::default();
        // The next attempt has the same number, but is not part of this capture.
        shared.monitor.guard("capture on demand", || captures.end(None));
        shared.monitor.guard("device statistics", || shared.queue().abandon_step(&shared.monitor));
        // The next gradients belong to micro-batch 0 again.
        gradients::begin_next_step(shared, &mut parameters.watched);
        shared.monitor.skip_step();
    }

    fn measure_before(&mut self, moments: &dyn MomentSource) {
        let Self { shared, parameters, .. } = self;
        shared.monitor.guard("device statistics", || shared.queue().collect(&shared.monitor));
        step::before(shared, &mut parameters.watched, moments);
    }

    fn measure_after(&mut self, moments: &dyn MomentSource) {
        step::after(&self.shared, &mut self.parameters.watched, moments);
        if let Some(modules) = self.shared.take_met() {
            // Modules are registered between the creation of the watch and the end of the first step.
            let monitor = &self.shared.monitor;
            monitor.guard("targets", || monitor.warn_of_targets(&self.parameters.names(), &modules));
        }
        self.shared.monitor.end_step(std::mem::take(&mut self.facts));
        if self.plan_version != self.shared.monitor.plan_version() {
            self.follow_plan();
        }
        let Self { shared, captures, .. } = self;
        shared.monitor.guard("capture on demand", || captures.begin_next_step());
    }

    /// Applies a plan that live control changed, from the step that begins now.
    fn follow_plan(&mut self) {
        let Self { shared, parameters, plan_version, .. } = self;
        let monitor = &shared.monitor;
        *plan_version = monitor.plan_version();
        monitor.guard("live control", || {
            shared.follow_plan();
            parameters.aim(&monitor.plan().targets(monitor.config()));
            gradients::begin_next_step(shared, &mut parameters.watched);
        });
    }

    /// Ends the watch: waits for device results within the config's deadline, delivers queued batches, and returns the
    /// monitor's final report. The monitor also prints the report unless it is quiet.
    pub fn finish(self) -> Report {
        let Self { shared, captures, .. } = self;
        let monitor = shared.monitor.clone();
        drop(captures);
        let patience = Duration::from_millis(monitor.config().pipeline.shutdown_timeout_ms);
        monitor.guard("device statistics", || shared.queue().finish(&monitor, Instant::now() + patience));
        monitor.shutdown()
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("parameters", &self.parameters.watched.len()).finish_non_exhaustive()
    }
}
