//! Tensors on a device: the device computes statistics, and the host reads the results a step later without waiting.
//!
//! [`DeviceQueue`] collects the tensors of the hooks, launches them in batches, keeps each step's batch of records open
//! with a [`PendingStep`], and fills it when the results have arrived. [`DeviceStatistics`] is the interface;
//! `trainmon_agent::front` defines its plan and rows, which the Python front shares. [`KernelStatistics`] launches the
//! kernels of `trainmon-device`. Tensors that the kernels cannot measure go to [`LibtorchStatistics`], which uses
//! libtorch's own operators.

mod kernels;
mod libtorch;
mod target;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tch::Tensor;
use trainmon_agent::core::{Phase, Step};
use trainmon_agent::front::{DevicePlan, DeviceRow};
use trainmon_agent::stats::Request;
use trainmon_agent::{Monitor, Notice, PendingStep};

pub use kernels::{KernelStatistics, Launch};
pub use libtorch::LibtorchStatistics;
use target::Place;
pub(crate) use target::Target;

use crate::ffi::unobserved;

/// Computes statistics on the device of the tensors.
pub trait DeviceStatistics: Send {
    /// Launches the statistics of `tensors` and the copy of the results to the host. All tensors are on one device, and
    /// none is empty. Must return without waiting for the device. Work launched later on the same stream may overwrite
    /// the tensors.
    ///
    /// # Errors
    /// The tensors cannot be measured. The error is a message for the user.
    fn launch(&mut self, tensors: &[&Tensor], plan: DevicePlan) -> Result<Box<dyn InFlight>, String>;

    /// Returns a notice for the user, once. Called after each launch.
    fn remark(&mut self) -> Option<Notice> {
        None
    }
}

/// Launched statistics, until they arrive on the host.
pub trait InFlight: Send {
    /// Whether the results have arrived. Must not wait.
    ///
    /// # Errors
    /// The device failed; the results will never arrive.
    fn is_ready(&self) -> Result<bool, String>;

    /// Returns the results, one row per tensor. Called once, when they are ready.
    fn rows(&self) -> Vec<DeviceRow>;
}

/// The device statistics that the watch and its captures share.
#[derive(Clone)]
pub(crate) struct SharedStatistics(Arc<Mutex<Box<dyn DeviceStatistics>>>);

impl SharedStatistics {
    pub(crate) fn new(statistics: impl DeviceStatistics + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(statistics))))
    }

    /// Launches statistics while the observers are paused, so that no capture contains their operators.
    pub(crate) fn launch(&self, tensors: &[&Tensor], plan: DevicePlan) -> Result<Box<dyn InFlight>, String> {
        let mut statistics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unobserved(|| statistics.launch(tensors, plan))
    }

    /// Returns a notice for the user, once.
    fn remark(&self) -> Option<Notice> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remark()
    }
}

/// The largest number of steps that results may be late. If the device is further behind, new measurements are dropped.
const MOST_STEPS_LATE: u64 = 4;

/// The polling interval after the training has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The queued and the launched measurements.
pub(crate) struct DeviceQueue {
    statistics: SharedStatistics,
    queued: Vec<Target>,
    /// Whether a call of [`launch`](Self::launch) is already scheduled.
    is_launch_expected: bool,
    under_way: VecDeque<Transfer>,
}

struct Transfer {
    step: Step,
    places: Vec<Place>,
    results: Box<dyn InFlight>,
    pending: PendingStep,
}

impl DeviceQueue {
    pub(crate) fn new(statistics: SharedStatistics) -> Self {
        Self { statistics, queued: Vec::new(), is_launch_expected: false, under_way: VecDeque::new() }
    }

    pub(crate) fn enqueue(&mut self, target: Target) {
        self.queued.push(target);
    }

    /// Returns whether the caller is the first since the last launch and must schedule the next one.
    pub(crate) fn expect_launch(&mut self) -> bool {
        !std::mem::replace(&mut self.is_launch_expected, true)
    }

    /// Launches the queued measurements in one batch per device and set of statistics.
    pub(crate) fn launch(&mut self, monitor: &Monitor) {
        self.is_launch_expected = false;
        if self.queued.is_empty() {
            return;
        }
        let start = Instant::now();
        let mut queued = std::mem::take(&mut self.queued);
        while let Some(first) = queued.first() {
            let shared = first.batch_key(monitor);
            let (batch, rest) = queued.into_iter().partition(|target| target.batch_key(monitor) == shared);
            queued = rest;
            match shared.request {
                Some(request) => self.launch_batch(monitor, batch, request),
                None => drop(batch),
            }
        }
        if let Some(remark) = self.statistics.remark() {
            monitor.notices().say(&remark);
        }
        monitor.add_cost(Phase::Launch, start.elapsed());
    }

    fn launch_batch(&mut self, monitor: &Monitor, batch: Vec<Target>, request: Request) {
        let step = monitor.step();
        let (targets, empty): (Vec<_>, Vec<_>) = batch.into_iter().partition(|target| !target.place.is_empty());
        for target in empty {
            monitor.record(target.place.empty_record(), Duration::ZERO, 0);
        }
        if targets.is_empty() {
            return;
        }
        // The tensors are released after the launch: their memory is reused in the order of the stream.
        let (tensors, places): (Vec<Tensor>, Vec<Place>) =
            targets.into_iter().map(|target| (target.tensor, target.place)).unzip();
        if self.under_way.front().is_some_and(|oldest| step.0.saturating_sub(oldest.step.0) > MOST_STEPS_LATE) {
            return refuse(&places, monitor, "the device is several steps behind with earlier statistics");
        }
        match self.statistics.launch(&tensors.iter().collect::<Vec<_>>(), DevicePlan::of(request)) {
            Ok(results) => {
                self.under_way.push_back(Transfer { step, places, results, pending: monitor.pending_step() });
            }
            Err(why) => refuse(&places, monitor, &why),
        }
    }

    /// Counts measurements that were not launched by the end of the step as unmeasured (launching is off after a
    /// fault), because the tensors must not be kept.
    pub(crate) fn give_up_queued(&mut self, monitor: &Monitor) {
        self.is_launch_expected = false;
        for target in self.queued.drain(..) {
            target.place.refuse(monitor, "device statistics are off");
        }
    }

    /// Counts the measurements of the current step as unmeasured, because the optimizer skips it.
    pub(crate) fn abandon_step(&mut self, monitor: &Monitor) {
        self.give_up_queued(monitor);
        let step = monitor.step();
        while self.under_way.back().is_some_and(|transfer| transfer.step == step) {
            if let Some(transfer) = self.under_way.pop_back() {
                refuse(&transfer.places, monitor, "its step was skipped");
            }
        }
    }

    /// Counts all queued and launched measurements as unmeasured.
    pub(crate) fn abandon(&mut self, monitor: &Monitor, why: &str) {
        self.give_up_queued(monitor);
        for transfer in self.under_way.drain(..) {
            refuse(&transfer.places, monitor, why);
        }
    }

    /// Records the results of earlier steps that have arrived.
    pub(crate) fn collect(&mut self, monitor: &Monitor) {
        let start = Instant::now();
        let step = monitor.step();
        let before = self.under_way.len();
        while self.under_way.front().is_some_and(|transfer| transfer.step < step && transfer.is_over()) {
            if let Some(transfer) = self.under_way.pop_front() {
                transfer.land(monitor);
            }
        }
        if self.under_way.len() != before {
            monitor.add_cost(Phase::Launch, start.elapsed());
        }
    }

    /// Waits for all launched measurements, at most until `deadline`. The training has ended, so this delays nothing.
    pub(crate) fn finish(&mut self, monitor: &Monitor, deadline: Instant) {
        self.give_up_queued(monitor);
        while let Some(transfer) = self.under_way.pop_front() {
            while !transfer.is_over() && Instant::now() < deadline {
                std::thread::sleep(POLL_INTERVAL);
            }
            transfer.land(monitor);
        }
    }
}

impl Transfer {
    fn is_over(&self) -> bool {
        self.results.is_ready().unwrap_or(true)
    }

    /// Adds the results to their step; dropping the pending step then releases its batch.
    fn land(self, monitor: &Monitor) {
        match self.results.is_ready() {
            Ok(true) => {
                let rows = self.results.rows();
                for (place, row) in self.places.iter().zip(&rows) {
                    self.pending.record(place.record(row));
                }
                let answered = rows.len().min(self.places.len());
                refuse(&self.places[answered..], monitor, "the device's statistics do not include it");
            }
            Ok(false) => refuse(&self.places, monitor, "the device did not deliver the statistics in time"),
            Err(why) => refuse(&self.places, monitor, &why),
        }
    }
}

fn refuse(places: &[Place], monitor: &Monitor, why: &str) {
    for place in places {
        place.refuse(monitor, why);
    }
}
