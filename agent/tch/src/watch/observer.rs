//! Tensors measured by name, wherever the model meets them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tch::Tensor;

use super::module::new_site;
use super::shared::Shared;
use super::site::Site;
use crate::ffi::grad_mode_enabled;

/// Measures tensors of the forward pass by name. Cheap to clone; a model can own one, or a closure capture it.
#[derive(Clone)]
pub struct Observer {
    shared: Arc<Shared>,
    /// `None` for names that the config does not ask for.
    sites: Arc<Mutex<HashMap<String, Option<Arc<Site>>>>>,
}

impl Observer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, sites: Arc::default() }
    }

    /// Measures a tensor, and its gradient when it comes: for closures, tuples, and models that cannot be wrapped. The
    /// config's targets apply to `name` as to a module's. Call it once per micro-batch and name. Ignored while gradients
    /// are off. Cost: a look-up by name, and the measurement.
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
        if let Some(site) = sites.get(name) {
            return site.clone();
        }
        let config = self.shared.monitor.config();
        let wanted = config.activations.as_ref().is_some_and(|wanted| wanted.matches_module(&config.targets, name, 0));
        let site = wanted.then(|| Arc::new(new_site(&self.shared, name, name, 0)));
        sites.insert(name.to_owned(), site.clone());
        site
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
