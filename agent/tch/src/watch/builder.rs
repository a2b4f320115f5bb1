//! Setting up a watch.

use std::sync::Arc;

use tch::nn::VarStore;
use trainmon_agent::Monitor;

use super::parameter::Parameters;
use super::shared::Shared;
use super::{Watch, WatchError, gradients};
use crate::capture::CaptureOptions;
use crate::device::{DeviceQueue, DeviceStatistics, KernelStatistics, SharedStatistics};

/// Collects what a [`Watch`] needs to know; see [`Watch::builder`].
pub struct WatchBuilder<'a> {
    monitor: Monitor,
    models: Vec<&'a VarStore>,
    micro_batches: u32,
    foreign_writes: bool,
    device_path_only: bool,
    statistics: SharedStatistics,
}

impl<'a> WatchBuilder<'a> {
    pub(super) fn new(monitor: Monitor) -> Self {
        Self {
            monitor,
            models: Vec::new(),
            micro_batches: 1,
            foreign_writes: false,
            device_path_only: false,
            statistics: SharedStatistics::new(KernelStatistics::default()),
        }
    }

    /// Adds a model, fully built: variables made later are not watched. The first one is virtual-pipeline stage 0, the
    /// next one stage 1, and so on.
    #[must_use]
    pub fn model(mut self, variables: &'a VarStore) -> Self {
        self.models.push(variables);
        self
    }

    /// How many backward passes make up one optimizer step; 1 if not said, and the config's own number goes first.
    #[must_use]
    pub fn grad_acc_steps(mut self, micro_batches: u32) -> Self {
        self.micro_batches = micro_batches.max(1);
        self
    }

    /// Gradients or parameters are written behind torch's back: by a communication library working on raw pointers, or
    /// through `Tensor::data()`, whose writes torch does not count. Each is then always read anew; otherwise one that
    /// torch knows to be unchanged is not. (Other writes through torch are noticed.)
    #[must_use]
    pub fn tensors_are_written_outside_torch(mut self) -> Self {
        self.foreign_writes = true;
        self
    }

    /// Replaces libtorch's operators for tensors on a device, by a fused kernel for example; in captures, too.
    #[must_use]
    pub fn device_statistics(mut self, statistics: impl DeviceStatistics + 'static) -> Self {
        self.statistics = SharedStatistics::new(statistics);
        self
    }

    /// Sends host tensors down the device path too, so that both can be compared on any machine. Slower.
    #[must_use]
    pub fn everything_through_the_device_path(mut self) -> Self {
        self.device_path_only = true;
        self
    }

    /// Finds the parameters and installs the hooks, and has the monitor say what it measures and where that goes
    /// ([`Monitor::announce`]).
    ///
    /// # Errors
    /// No model was given, or libtorch refuses a hook.
    pub fn build(self) -> Result<Watch, WatchError> {
        if self.models.is_empty() {
            return Err(WatchError::NoModel);
        }
        let mut parameters = Parameters::of(&self.monitor, &self.models);
        let configured = self.monitor.config().signals.weight_grad.as_ref().and_then(|grad| grad.micro_batches);
        let shared = Arc::new(Shared::new(
            self.monitor,
            configured.unwrap_or(self.micro_batches).max(1),
            self.foreign_writes,
            self.device_path_only,
            DeviceQueue::new(self.statistics.clone()),
        ));
        gradients::hook(&shared, &mut parameters.watched)?;
        shared.monitor.announce(parameters.watched.len(), parameters.len());
        let captures = CaptureOptions::default().with_statistics(self.statistics, self.device_path_only);
        Ok(Watch::new(shared, parameters, captures))
    }
}
