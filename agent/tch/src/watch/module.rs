//! Modules whose inputs, outputs and their gradients are measured.

use std::sync::Arc;

use tch::Tensor;
use tch::nn::{Module, ModuleT};
use trainmon_agent::core::{Kind, ModuleEnd, activation_name};

use super::shared::Shared;
use super::site::Site;
use crate::ffi::grad_mode_enabled;

/// Both ends of a module; `None` if the config does not ask for this module.
type Ends = Option<(Site, Site)>;

/// A module that shows its input and output to the monitor, and computes exactly what it computed before.
///
/// A call counts as training when gradients are recorded: validation under `tch::no_grad` is not measured.
pub struct Watched<M> {
    module: M,
    gauge: Gauge,
}

/// As [`Watched`], for a module with a train flag: only calls with `train` set are measured.
pub struct WatchedT<M> {
    module: M,
    gauge: Gauge,
}

/// The measuring part of a watched module.
pub(super) struct Gauge {
    shared: Arc<Shared>,
    ends: Ends,
}

impl Gauge {
    pub(super) fn new(shared: &Arc<Shared>, name: &str, vpp_stage: u32) -> Self {
        let config = shared.monitor.config();
        let wanted = config.activations.as_ref();
        let wanted = wanted.is_some_and(|wanted| wanted.matches_module(&config.targets, name, vpp_stage));
        let ends = wanted.then(|| {
            let site = |end| {
                let name = |is_gradient| activation_name(config.dialect, name, end, is_gradient, 0, 1);
                new_site(shared, &name(false), &name(true), vpp_stage)
            };
            (site(ModuleEnd::Input), site(ModuleEnd::Output))
        });
        Self { shared: Arc::clone(shared), ends }
    }

    fn forward(&self, input: &Tensor, is_training: bool, forward: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        let Some((before, after)) = self.ends.as_ref().filter(|_| is_training) else { return forward(input) };
        self.shared.monitor.guard("activations", || before.pass(&self.shared, input));
        let output = forward(input);
        self.shared.monitor.guard("activations", || after.pass(&self.shared, &output));
        output
    }
}

/// Registers the names of a site: one if the dialect calls gradients as it calls values.
pub(super) fn new_site(shared: &Shared, forward: &str, backward: &str, vpp_stage: u32) -> Site {
    let id = shared.monitor.register(forward, vpp_stage);
    let asks_gradient = shared.monitor.request(Kind::ActvGrad).is_some() && backward != forward;
    Site::new(id, if asks_gradient { shared.monitor.register(backward, vpp_stage) } else { id })
}

impl<M> Watched<M> {
    pub(super) fn new(module: M, gauge: Gauge) -> Self {
        Self { module, gauge }
    }

    /// The module itself.
    pub fn inner(&self) -> &M {
        &self.module
    }
}

impl<M> WatchedT<M> {
    pub(super) fn new(module: M, gauge: Gauge) -> Self {
        Self { module, gauge }
    }

    /// The module itself.
    pub fn inner(&self) -> &M {
        &self.module
    }
}

impl<M: std::fmt::Debug> std::fmt::Debug for Watched<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watched").field(&self.module).finish()
    }
}

impl<M: std::fmt::Debug> std::fmt::Debug for WatchedT<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WatchedT").field(&self.module).finish()
    }
}

impl<M: Module> Module for Watched<M> {
    fn forward(&self, xs: &Tensor) -> Tensor {
        self.gauge.forward(xs, grad_mode_enabled(), |xs| self.module.forward(xs))
    }
}

impl<M: ModuleT> ModuleT for WatchedT<M> {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.gauge.forward(xs, train, |xs| self.module.forward_t(xs, train))
    }
}
