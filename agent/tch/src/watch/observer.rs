//! Tensors of the forward pass that are measured by name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tch::Tensor;
use trainmon_agent::core::config::Activations;

use super::module::new_site;
use super::shared::Shared;
use super::site::Site;
use crate::ffi::grad_mode_enabled;

/// Measures tensors of the forward pass by name. It is cheap to clone, so a model or a closure can own one.
#[derive(Clone)]
pub struct Observer {
    shared: Arc<Shared>,
    sites: Arc<Mutex<Sites>>,
}

#[derive(Default)]
struct Sites {
    /// The version of the plan that `wanted` was computed from.
    version: u64,
    /// Whether the plan requests each name.
    wanted: HashMap<String, bool>,
    /// The sites of requested names, created on first use.
    made: HashMap<String, Arc<Site>>,
}

impl Observer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, sites: Arc::default() }
    }

    /// Measures a tensor and later its gradient: for closures, tuples, and models that cannot be wrapped. The config's
    /// targets apply to `name` as to a module's name. Call it once per micro-batch and name. It does nothing while
    /// gradients are off. It costs a look-up by name and the measurement.
    pub fn observe(&self, name: &str, tensor: &Tensor) {
        if !grad_mode_enabled() {
            return;
        }
        self.shared.monitor.guard("activations", || {
            if let Some(site) = self.site(name) {
                site.pass(&self.shared, tensor);
            }
        });
    }

    fn site(&self, name: &str) -> Option<Arc<Site>> {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let Sites { version, wanted, made } = &mut *sites;
        let monitor = &self.shared.monitor;
        let now = monitor.plan_version();
        if *version != now {
            *version = now;
            wanted.clear();
        }
        let is_wanted = if let Some(&known) = wanted.get(name) {
            known
        } else {
            self.shared.meet(name, 0);
            let plan = monitor.plan();
            let matches = |asked: &Activations| asked.matches_module(&plan.targets(monitor.config()), name, 0);
            let is_wanted = plan.signals.activations.as_ref().is_some_and(matches);
            wanted.insert(name.to_owned(), is_wanted);
            is_wanted
        };
        if !is_wanted {
            return None;
        }
        let site = made.entry(name.to_owned()).or_insert_with(|| Arc::new(new_site(&self.shared, name, name, 0)));
        Some(Arc::clone(site))
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
