//! The builder of a watch.

use std::sync::Arc;

use tch::nn::VarStore;
use trainmon_agent::Monitor;

use super::parameter::Parameters;
use super::shared::Shared;
use super::{Watch, WatchError, gradients};
use crate::capture::CaptureOptions;
use crate::device::{DeviceQueue, DeviceStatistics, KernelStatistics, SharedStatistics};

/// Collects the models and options of a [`Watch`]; see [`Watch::builder`].
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

    /// Adds a fully built model: variables created later are not watched. The first model is virtual-pipeline stage 0,
    /// the next one stage 1, and so on.
    #[must_use]
    pub fn model(mut self, variables: &'a VarStore) -> Self {
        self.models.push(variables);
        self
    }

    /// Sets the number of backward passes per optimizer step, 1 by default. A number in the config takes precedence.
    #[must_use]
    pub fn grad_acc_steps(mut self, micro_batches: u32) -> Self {
        self.micro_batches = micro_batches.max(1);
        self
    }

    /// Declares that gradients or parameters are written without torch's knowledge: by a communication library on raw
    /// pointers, or through `Tensor::data()`, whose writes torch does not count. trainmon then reads every tensor
    /// again;
    /// by default, it skips tensors that torch reports as unchanged. (Other writes through torch are detected.)
    #[must_use]
    pub fn tensors_are_written_outside_torch(mut self) -> Self {
        self.foreign_writes = true;
        self
    }

    /// Replaces the computation of statistics on devices, for example with a fused kernel. Captures use it too.
    #[must_use]
    pub fn device_statistics(mut self, statistics: impl DeviceStatistics + 'static) -> Self {
        self.statistics = SharedStatistics::new(statistics);
        self
    }

    /// Measures host tensors on the device path too, so that you can compare both paths on any machine. This is slower.
    #[must_use]
    pub fn everything_through_the_device_path(mut self) -> Self {
        self.device_path_only = true;
        self
    }

    /// Finds the parameters, installs the hooks, and lets the monitor report what it measures and where the output goes
    /// ([`Monitor::announce`]).
    ///
    /// # Errors
    /// The builder has no model, or libtorch rejects a hook.
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
