//! Tensors on a device: statistics are launched there and their results read a step later. The host never waits.
//!
//! [`DeviceQueue`] collects what the hooks want measured, launches it in batches, keeps each step's batch of records open
//! with a hold, and fills it when the results have arrived. [`DeviceStatistics`] is the seam (`trainmon_agent::front`
//! has its plan and its rows, which the Python front shares): [`KernelStatistics`] launches the kernels of
//! `trainmon-device`, and leaves to [`LibtorchStatistics`], which uses libtorch's own operators, what they cannot measure.

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

/// Computes statistics where the tensors lie.
pub trait DeviceStatistics: Send {
    /// Launches the statistics of `tensors`, all on one device and none of them empty, and the copy of the results to the
    /// host. Must return without waiting for the device. What is launched later on the same stream may overwrite the
    /// tensors.
    ///
    /// # Errors
    /// Why these tensors cannot be measured, for a person.
    fn launch(&mut self, tensors: &[&Tensor], plan: DevicePlan) -> Result<Box<dyn InFlight>, String>;

    /// What there is to tell a person, once; asked after a launch.
    fn remark(&mut self) -> Option<Notice> {
        None
    }
}

/// Statistics on their way to the host.
pub trait InFlight: Send {
    /// Whether the results have arrived. Asks, never waits.
    ///
    /// # Errors
    /// The device failed; the results never come.
    fn is_ready(&self) -> Result<bool, String>;

    /// What was found, one row per tensor; asked for once, when ready.
    fn rows(&self) -> Vec<DeviceRow>;
}

/// What measures on devices, shared by the watch and its captures.
#[derive(Clone)]
pub(crate) struct SharedStatistics(Arc<Mutex<Box<dyn DeviceStatistics>>>);

impl SharedStatistics {
    pub(crate) fn new(statistics: impl DeviceStatistics + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(statistics))))
    }

    /// Launches statistics; no capture sees the operators they are made of.
    pub(crate) fn launch(&self, tensors: &[&Tensor], plan: DevicePlan) -> Result<Box<dyn InFlight>, String> {
        let mut statistics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unobserved(|| statistics.launch(tensors, plan))
    }

    /// What there is to tell.
    fn remark(&self) -> Option<Notice> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remark()
    }
}

/// How many steps results may be late: with more, the device does not keep up and new measurements are left out.
const MOST_STEPS_LATE: u64 = 4;

/// How long to wait before asking again, once training is over.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Measurements queued, and measurements under way.
pub(crate) struct DeviceQueue {
    statistics: SharedStatistics,
    queued: Vec<Target>,
    /// Whether somebody will call [`launch`](Self::launch) soon.
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

    /// Whether the caller is the first since the last launch, and so has to see to the next one.
    pub(crate) fn expect_launch(&mut self) -> bool {
        !std::mem::replace(&mut self.is_launch_expected, true)
    }

    /// Launches what is queued: one batch per device and set of statistics.
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
        // The tensors are let go once launched: their memory is reused in the order of the stream.
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

    /// Counts as unmeasured what nobody launched by the end of the step (launching is off after a fault): the tensors
    /// must not be kept.
    pub(crate) fn give_up_queued(&mut self, monitor: &Monitor) {
        self.is_launch_expected = false;
        for target in self.queued.drain(..) {
            target.place.refuse(monitor, "device statistics are off");
        }
    }

    /// The step in progress is not made after all: what was launched for it is counted as unmeasured.
    pub(crate) fn abandon_step(&mut self, monitor: &Monitor) {
        self.give_up_queued(monitor);
        let step = monitor.step();
        while self.under_way.back().is_some_and(|transfer| transfer.step == step) {
            if let Some(transfer) = self.under_way.pop_back() {
                refuse(&transfer.places, monitor, "its step was skipped");
            }
        }
    }

    /// Counts everything queued and under way as unmeasured.
    pub(crate) fn abandon(&mut self, monitor: &Monitor, why: &str) {
        self.give_up_queued(monitor);
        for transfer in self.under_way.drain(..) {
            refuse(&transfer.places, monitor, why);
        }
    }

    /// Records what has arrived of earlier steps.
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

    /// Waits, at most until `deadline`, for everything under way: the training is over, nobody is delayed.
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

    /// Hands the results to the step they belong to; dropping the hold then lets its batch go.
    fn land(self, monitor: &Monitor) {
        match self.results.is_ready() {
            Ok(true) => {
                let rows = self.results.rows();
                for (place, row) in self.places.iter().zip(&rows) {
                    self.pending.record(place.record(row));
                }
                let answered = rows.len().min(self.places.len());
                refuse(&self.places[answered..], monitor, "the device's statistics came without it");
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
