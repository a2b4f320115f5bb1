//! What the hooks and the watch share: the monitor, and the one way a tensor gets measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trainmon_agent::Monitor;
use trainmon_agent::core::{Kind, TensorStats};
use trainmon_agent::front::{CachedReading, Label};

use crate::device::{DeviceQueue, Target};
use crate::ffi::{Description, TensorRef};

/// Which contents of which tensor: torch counts every write it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    identity: usize,
    address: usize,
    version: i64,
}

impl Contents {
    /// `None` where torch does not count writes.
    fn of(description: &Description<'_>) -> Option<Self> {
        let (identity, address) = (description.identity(), description.address());
        Some(Self { identity, address, version: description.version()? })
    }
}

/// Shared by the watch, the gradient hooks and the watched modules.
pub(crate) struct Shared {
    pub(crate) monitor: Monitor,
    /// Micro-batches per optimizer step, at least 1.
    pub(crate) micro_batches: u32,
    /// Whether gradients and parameters may be written behind torch's back (by a communication library, say).
    pub(crate) foreign_writes: bool,
    /// Sends host tensors down the device path, for comparisons.
    pub(crate) device_path_only: bool,
    /// The plan of what is measured, as of the last look between two steps.
    every_micro_batch: AtomicBool,
    /// The modules and named tensors met so far, with their chunk; `None` after the first step.
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
        // Live control may name other targets: between two steps they are looked up anew.
        monitor.follow_targets();
        let every_micro_batch = AtomicBool::new(every_micro_batch(&monitor));
        let (met, queue) = (Mutex::new(Some(Vec::new())), Mutex::new(queue));
        Self { monitor, micro_batches, foreign_writes, device_path_only, every_micro_batch, met, queue }
    }

    /// Notes a module, or a tensor with a name, for the look at the targets in the first step.
    pub(super) fn meet(&self, name: &str, vpp_stage: u32) {
        if let Some(met) = self.met.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            met.push((name.to_owned(), vpp_stage));
        }
    }

    /// What was met before; once.
    pub(super) fn take_met(&self) -> Option<Vec<(String, u32)>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether the gradient is measured after every micro-batch, not the last alone.
    pub(super) fn every_micro_batch(&self) -> bool {
        self.every_micro_batch.load(Ordering::Relaxed)
    }

    /// Looks up what a changed plan says.
    pub(super) fn follow_plan(&self) {
        self.every_micro_batch.store(every_micro_batch(&self.monitor), Ordering::Relaxed);
    }

    /// The queue of device measurements.
    pub(crate) fn queue(&self) -> MutexGuard<'_, DeviceQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this kind is configured and this step measured.
    pub(crate) fn wants(&self, kind: Kind) -> bool {
        self.monitor.collecting() && self.monitor.request(kind).is_some()
    }

    pub(crate) fn is_on_device_path(&self, description: &Description<'_>) -> bool {
        !description.is_on_host() || self.device_path_only
    }

    /// Whether it is a tensor's turn under the overhead budget; if not, it is counted here.
    pub(super) fn admits(&self, label: Label) -> bool {
        let admits = self.monitor.wants(label.tensor, label.kind);
        if !admits {
            self.monitor.leave_out(label.kind);
        }
        admits
    }

    /// Measures a tensor: in place on the host, else queued for the device. What cannot be measured is counted.
    pub(crate) fn measure(&self, label: Label, tensor: TensorRef<'_>) -> Option<TensorStats> {
        if !self.admits(label) {
            return None;
        }
        let description = self.describe(label, tensor)?;
        self.measure_described(label, tensor, &description)
    }

    /// As [`measure`](Self::measure); takes the known reading if the tensor was not written since, and remembers it.
    pub(super) fn measure_unless_known(
        &self,
        label: Label,
        tensor: TensorRef<'_>,
        known: &mut CachedReading<Contents>,
    ) -> Option<TensorStats> {
        let request = self.monitor.request(label.kind)?;
        if !self.admits(label) {
            return None;
        }
        let description = self.describe(label, tensor)?;
        let contents = Contents::of(&description);
        if !self.foreign_writes
            && let Some(reading) = known.recall(contents.as_ref(), request)
        {
            self.monitor.record(label.with(reading), Duration::ZERO, 0);
            return Some(reading);
        }
        let reading = self.measure_described(label, tensor, &description);
        match reading {
            Some(reading) => known.remember(contents, request, reading),
            None => known.forget(),
        }
        reading
    }

    /// Where the tensor lies. `None` is recorded as missing or unsupported already.
    fn describe<'a>(&self, label: Label, tensor: TensorRef<'a>) -> Option<Description<'a>> {
        match tensor.describe() {
            Ok(Some(description)) => Some(description),
            Ok(None) => {
                self.monitor.observe_missing(label.tensor, label.kind, label.micro_step);
                None
            }
            Err(why) => {
                self.unsupported(label, &why);
                None
            }
        }
    }

    fn measure_described(
        &self,
        label: Label,
        tensor: TensorRef<'_>,
        description: &Description<'_>,
    ) -> Option<TensorStats> {
        if self.is_on_device_path(description) && description.is_strided() {
            if let Err(why) = Target::measured(label, tensor, description).map(|target| self.queue().enqueue(target)) {
                self.unsupported(label, &why);
            }
            return None;
        }
        match description.view() {
            Ok(view) => self.monitor.observe(label.tensor, label.kind, label.micro_step, &view),
            Err(why) => {
                self.unsupported(label, &why);
                None
            }
        }
    }

    pub(crate) fn unsupported(&self, label: Label, why: &dyn std::fmt::Display) {
        self.monitor.observe_unsupported(label.tensor, label.kind, &why.to_string());
    }

    /// Launches what was queued for the device.
    pub(crate) fn launch_queued(&self) {
        self.queue().launch(&self.monitor);
    }
}

fn every_micro_batch(monitor: &Monitor) -> bool {
    monitor.plan().signals.weight_grad.as_ref().is_some_and(|grad| grad.every_micro_batch)
}

/// A watch dropped in mid-run: what devices still compute is counted as not measured.
impl Drop for Shared {
    fn drop(&mut self) {
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner);
        queue.abandon(&self.monitor, "the watch was dropped before the device delivered");
    }
}
