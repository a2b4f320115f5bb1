//! The options of a capture besides its plan.

use crate::device::{DeviceStatistics, KernelStatistics, SharedStatistics};

/// The options of a capture. By default, it records no Rust stacks and measures device tensors with
/// [`KernelStatistics`].
#[derive(Clone)]
pub struct CaptureOptions {
    pub(super) has_stacks: bool,
    pub(super) statistics: SharedStatistics,
    pub(super) is_device_path_only: bool,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        let statistics = SharedStatistics::new(KernelStatistics::default());
        Self { has_stacks: false, statistics, is_device_path_only: false }
    }
}

impl CaptureOptions {
    /// Sets whether `stack.json` contains the Rust stack of each call (some tenths of a millisecond per call).
    #[must_use]
    pub fn stacks(mut self, has_stacks: bool) -> Self {
        self.has_stacks = has_stacks;
        self
    }

    /// Replaces the computation of statistics on devices, for example with a fused kernel.
    #[must_use]
    pub fn device_statistics(self, statistics: impl DeviceStatistics + 'static) -> Self {
        let is_device_path_only = self.is_device_path_only;
        self.with_statistics(SharedStatistics::new(statistics), is_device_path_only)
    }

    /// Measures host tensors on the device path too, so that you can compare both paths on any machine. This is slower.
    #[must_use]
    pub fn everything_through_the_device_path(mut self) -> Self {
        self.is_device_path_only = true;
        self
    }

    pub(crate) fn with_statistics(mut self, statistics: SharedStatistics, is_device_path_only: bool) -> Self {
        self.statistics = statistics;
        self.is_device_path_only = is_device_path_only;
        self
    }
}
