//! Watched modules: trainmon measures their inputs, outputs and the gradients of both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tch::Tensor;
use tch::nn::{Module, ModuleT};
use trainmon_agent::core::config::Activations;
use trainmon_agent::core::{ModuleEnd, activation_name};

use super::shared::Shared;
use super::site::Site;
use crate::capture::around_module;
use crate::ffi::grad_mode_enabled;

/// The input and the output of a module.
type Ends = (Site, Site);

/// The plan version before the first check.
const UNSEEN: u64 = u64::MAX;

/// A module whose input and output the monitor measures. Its result is exactly that of the wrapped module.
///
/// A call counts as training if gradients are recorded: validation under `tch::no_grad` is not measured.
pub struct Watched<M> {
    module: M,
    gauge: Gauge,
}

/// Like [`Watched`], for a module with a train flag: only calls with `train` set are measured.
pub struct WatchedT<M> {
    module: M,
    gauge: Gauge,
}

/// The measuring part of a watched module.
pub(super) struct Gauge {
    shared: Arc<Shared>,
    name: String,
    vpp_stage: u32,
    /// Created when the plan first requests this module.
    ends: OnceLock<Ends>,
    /// Whether the plan of `version` requests this module. Both are accessed relaxed: measuring a module once more or
    /// once less is harmless.
    is_wanted: AtomicBool,
    version: AtomicU64,
}

impl Gauge {
    pub(super) fn new(shared: &Arc<Shared>, name: &str, vpp_stage: u32) -> Self {
        shared.meet(name, vpp_stage);
        let gauge = Self {
            shared: Arc::clone(shared),
            name: name.to_owned(),
            vpp_stage,
            ends: OnceLock::new(),
            is_wanted: AtomicBool::new(false),
            version: AtomicU64::new(UNSEEN),
        };
        gauge.ends();
        gauge
    }

    /// Returns both ends if the current plan measures this module.
    fn ends(&self) -> Option<&Ends> {
        let version = self.shared.monitor.plan_version();
        if self.version.swap(version, Ordering::Relaxed) != version {
            let (plan, config) = (self.shared.monitor.plan(), self.shared.monitor.config());
            let matches =
                |wanted: &Activations| wanted.matches_module(&plan.targets(config), &self.name, self.vpp_stage);
            self.is_wanted.store(plan.signals.activations.as_ref().is_some_and(matches), Ordering::Relaxed);
        }
        self.is_wanted.load(Ordering::Relaxed).then(|| self.ends.get_or_init(|| self.make_ends()))
    }

    fn make_ends(&self) -> Ends {
        let dialect = self.shared.monitor.config().dialect;
        let site = |end| {
            let name = |is_gradient| activation_name(dialect, &self.name, end, is_gradient, 0, 1, 0);
            new_site(&self.shared, &name(false), &name(true), self.vpp_stage)
        };
        (site(ModuleEnd::Input), site(ModuleEnd::Output))
    }

    /// Runs the module within a capture's entry. `M` is the module's type, whose name the entry contains.
    fn forward<M>(&self, input: &Tensor, is_training: bool, forward: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        let class = std::any::type_name::<M>();
        around_module(&self.name, class, input, || self.measured(input, is_training, forward))
    }

    fn measured(&self, input: &Tensor, is_training: bool, forward: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        let ends = is_training.then(|| self.shared.monitor.guard("activations", || self.ends()).flatten()).flatten();
        let Some((before, after)) = ends else { return forward(input) };
        self.shared.monitor.guard("activations", || before.pass(&self.shared, input));
        let output = forward(input);
        self.shared.monitor.guard("activations", || after.pass(&self.shared, &output));
        output
    }
}

/// Registers the names of a site: only one if the dialect uses the same name for values and gradients.
pub(super) fn new_site(shared: &Shared, forward: &str, backward: &str, vpp_stage: u32) -> Site {
    let id = shared.monitor.register(forward, vpp_stage);
    // Registered even if gradients are not requested: live control may request them later.
    Site::new(id, if backward == forward { id } else { shared.monitor.register(backward, vpp_stage) })
}

impl<M> Watched<M> {
    pub(super) fn new(module: M, gauge: Gauge) -> Self {
        Self { module, gauge }
    }

    /// The wrapped module.
    pub fn inner(&self) -> &M {
        &self.module
    }
}

impl<M> WatchedT<M> {
    pub(super) fn new(module: M, gauge: Gauge) -> Self {
        Self { module, gauge }
    }

    /// The wrapped module.
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
        self.gauge.forward::<M>(xs, grad_mode_enabled(), |xs| self.module.forward(xs))
    }
}

impl<M: ModuleT> ModuleT for WatchedT<M> {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.gauge.forward::<M>(xs, train, |xs| self.module.forward_t(xs, train))
    }
}
