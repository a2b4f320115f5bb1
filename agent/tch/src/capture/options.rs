//! What a capture is begun with beside its plan.

use crate::device::{DeviceStatistics, KernelStatistics, SharedStatistics};

/// How a capture sees calls and tensors: without Rust's stacks, tensors on devices by libtorch's own operators.
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
    /// Whether each call has its Rust stack in `stack.json` (some tenths of a millisecond per call).
    #[must_use]
    pub fn stacks(mut self, has_stacks: bool) -> Self {
        self.has_stacks = has_stacks;
        self
    }

    /// Replaces libtorch's operators for tensors on a device, by a fused kernel for example.
    #[must_use]
    pub fn device_statistics(self, statistics: impl DeviceStatistics + 'static) -> Self {
        let is_device_path_only = self.is_device_path_only;
        self.with_statistics(SharedStatistics::new(statistics), is_device_path_only)
    }

    /// Sends host tensors down the device path too, so that both can be compared on any machine. Slower.
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
