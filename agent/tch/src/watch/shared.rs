//! State that the hooks and the watch share, and the measurement of a tensor on the host or on a device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use trainmon_agent::Monitor;
use trainmon_agent::core::Kind;
use trainmon_agent::front::{Found, Label, Measured, Meter, Shown};

use crate::device::{DeviceQueue, Target};
use crate::ffi::{Description, TensorRef, Unreadable};

/// State shared by the watch, the gradient hooks and the watched modules.
pub(crate) struct Shared {
    pub(crate) monitor: Monitor,
    pub(super) meter: Meter,
    /// Micro-batches per optimizer step, at least 1.
    pub(crate) micro_batches: u32,
    /// Whether gradients and parameters may be written without torch's knowledge, for example by a communication
    /// library.
    pub(crate) foreign_writes: bool,
    /// Whether host tensors are measured on the device path too, for comparisons.
    pub(crate) device_path_only: bool,
    /// Whether the plan measures every micro-batch; updated between two steps.
    every_micro_batch: AtomicBool,
    /// The modules and named tensors used so far, with their stage; `None` after the first step.
    met: Mutex<Option<Vec<(String, u32)>>>,
    queue: Mutex<DeviceQueue>,
}

impl Shared {
    pub(crate) fn new(
        monitor: Monitor,
        micro_batches: u32,
        foreign_writes: bool,
        device_path_only: bool,
        queue: DeviceQueue,
    ) -> Self {
        // Live control may change the targets, so they are looked up again between two steps.
        monitor.follow_targets();
        let every_micro_batch = AtomicBool::new(every_micro_batch(&monitor));
        let (met, queue) = (Mutex::new(Some(Vec::new())), Mutex::new(queue));
        let meter = Meter::new(monitor.clone());
        Self { monitor, meter, micro_batches, foreign_writes, device_path_only, every_micro_batch, met, queue }
    }

    /// Records a module or named tensor for the check of the targets in the first step.
    pub(super) fn meet(&self, name: &str, vpp_stage: u32) {
        if let Some(met) = self.met.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            met.push((name.to_owned(), vpp_stage));
        }
    }

    /// Returns the recorded modules and named tensors, once.
    pub(super) fn take_met(&self) -> Option<Vec<(String, u32)>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether the gradient is measured after every micro-batch instead of only the last.
    pub(super) fn every_micro_batch(&self) -> bool {
        self.every_micro_batch.load(Ordering::Relaxed)
    }

    /// Applies a changed plan.
    pub(super) fn follow_plan(&self) {
        self.every_micro_batch.store(every_micro_batch(&self.monitor), Ordering::Relaxed);
    }

    /// The queue of device measurements.
    pub(crate) fn queue(&self) -> MutexGuard<'_, DeviceQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this kind is configured and the current step is measured.
    pub(crate) fn wants(&self, kind: Kind) -> bool {
        self.monitor.collecting() && self.monitor.request(kind).is_some()
    }

    pub(crate) fn is_on_device_path(&self, description: &Description<'_>) -> bool {
        !description.is_on_host() || self.device_path_only
    }

    /// Whether the overhead budget allows the tensor in this step; if not, counts it as skipped.
    pub(super) fn admits(&self, label: Label) -> bool {
        let admits = self.monitor.wants(label.tensor, label.kind);
        if !admits {
            self.monitor.leave_out(label.kind);
        }
        admits
    }

    /// Measures a tensor: in place on the host, or through the device queue. Tensors that cannot be measured are
    /// counted.
    pub(crate) fn measure(&self, label: Label, tensor: TensorRef<'_>) -> Option<Measured> {
        self.meter.measure(Shown::new(label), || self.find(label, tensor))
    }

    /// Like [`measure`](Self::measure), but reuses a reading that is still valid.
    pub(super) fn measure_unless_known(&self, label: Label, tensor: TensorRef<'_>) -> Option<Measured> {
        let shown = Shown { may_be_known: !self.foreign_writes, ..Shown::new(label) };
        self.meter.measure(shown, || self.find(label, tensor))
    }

    /// Finds the tensor's memory, and queues a tensor for the device.
    fn find<'a>(&self, label: Label, tensor: TensorRef<'a>) -> Result<Found<Description<'a>>, Unreadable> {
        let Some(description) = tensor.describe()? else { return Ok(Found::Missing) };
        if self.is_on_device_path(&description) && description.is_strided() {
            self.queue().enqueue(Target::measured(label, tensor, &description)?);
            return Ok(Found::Queued);
        }
        Ok(Found::Here(description))
    }

    pub(crate) fn unsupported(&self, label: Label, why: &dyn std::fmt::Display) {
        self.monitor.observe_unsupported(label.tensor, label.kind, &why.to_string());
    }

    /// Launches the queued device measurements.
    pub(crate) fn launch_queued(&self) {
        self.queue().launch(&self.monitor);
    }
}

fn every_micro_batch(monitor: &Monitor) -> bool {
    monitor.plan().signals.weight_grad.as_ref().is_some_and(|grad| grad.every_micro_batch)
}

/// Counts outstanding device results as not measured if the watch is dropped during a run.
impl Drop for Shared {
    fn drop(&mut self) {
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner);
        queue.abandon(&self.monitor, "the watch was dropped before the device delivered the statistics");
    }
}
