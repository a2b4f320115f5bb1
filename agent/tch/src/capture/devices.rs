//! Tensors on devices: the device computes their statistics, which are added to the capture when they arrive. Nothing
//! waits for them before the step's end.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tch::{Device, Tensor};
use trainmon_agent::core::{Dtype, Shape, Statistic, StatisticSet};
use trainmon_agent::front::DevicePlan;
use trainmon_agent::stats::Request;
use trainmon_capture::{Later, Session};

use crate::device::{InFlight, SharedStatistics};
use crate::ffi::{Description, TensorRef, unobserved};

/// The longest time that the end of a step waits for a device.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The device statistics of a captured step, and the transfers in progress.
pub(super) struct Devices {
    statistics: SharedStatistics,
    /// Whether host tensors use this path too.
    is_for_all: bool,
    under_way: Mutex<VecDeque<Transfer>>,
}

struct Transfer {
    results: Box<dyn InFlight>,
    awaited: Vec<Awaited>,
}

/// A tensor whose statistics have not arrived yet.
struct Awaited {
    later: Later,
    dtype: Dtype,
    shape: Shape,
}

/// The device tensors of one part of an entry, until they are launched.
pub(super) struct Launch<'d> {
    devices: &'d Devices,
    tensors: Vec<(Tensor, Awaited)>,
}

impl Devices {
    pub(super) fn new(statistics: SharedStatistics, is_for_all: bool) -> Self {
        Self { statistics, is_for_all, under_way: Mutex::default() }
    }

    /// Begins the launch of one part's tensors.
    pub(super) fn launch(&self) -> Launch<'_> {
        Launch { devices: self, tensors: Vec::new() }
    }

    /// Waits for all transfers after the end of the step, and adds their statistics to the capture.
    pub(super) fn finish(&self, session: &Session) {
        let deadline = Instant::now() + LONGEST_WAIT;
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        tell_arrived(session, &mut under_way);
        while !under_way.is_empty() && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
            tell_arrived(session, &mut under_way);
        }
        if !under_way.is_empty() {
            session.note_error("device", "some statistics did not arrive in time; they are null", &[]);
            under_way.clear();
        }
    }
}

/// Adds the statistics that have arrived to the capture. Never waits.
fn tell_arrived(session: &Session, under_way: &mut VecDeque<Transfer>) {
    while under_way.front().is_some_and(|transfer| transfer.results.is_ready().unwrap_or(true)) {
        if let Some(transfer) = under_way.pop_front() {
            transfer.tell(session);
        }
    }
}

impl Transfer {
    fn tell(self, session: &Session) {
        if let Err(why) = self.results.is_ready() {
            return session.note_error("device", &why, &[]);
        }
        let rows = self.results.rows();
        if rows.len() < self.awaited.len() {
            session.note_error("device", "the statistics of some tensors are missing; they are null", &[]);
        }
        for (awaited, row) in self.awaited.iter().zip(rows) {
            let stats = row.stats(awaited.dtype, awaited.shape);
            session.fill_numbers(&awaited.later, &stats, awaited.shape.dims().is_empty());
        }
    }
}

impl Launch<'_> {
    /// Whether a tensor uses this path: it is on a device and strided.
    pub(super) fn takes(&self, description: &Description<'_>) -> bool {
        (!description.is_on_host() || self.devices.is_for_all) && description.is_strided()
    }

    /// Adds a tensor of which only statistics are requested.
    pub(super) fn add(&mut self, tensor: TensorRef<'_>, later: Later, dtype: Dtype, shape: Shape) {
        self.tensors.push((tensor.as_tensor().shallow_clone(), Awaited { later, dtype, shape }));
    }

    /// Launches the measurements of the current values; work queued on the device later may overwrite the tensors.
    /// There is one batch per device. On return, the results are being copied to the host.
    pub(super) fn go(self, session: &Session) {
        if self.tensors.is_empty() {
            return;
        }
        let mut under_way = self.devices.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        tell_arrived(session, &mut under_way);
        let mut rest = self.tensors;
        while let Some(device) = rest.first().map(|(tensor, _)| tensor.device()) {
            let (batch, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(tensor, _)| tensor.device() == device);
            rest = others;
            launch_batch(&self.devices.statistics, session, batch, &mut under_way);
        }
    }
}

/// Launches tensors together, or one by one if one of them cannot be measured.
fn launch_batch(
    statistics: &SharedStatistics,
    session: &Session,
    batch: Vec<(Tensor, Awaited)>,
    under_way: &mut VecDeque<Transfer>,
) {
    let launched = statistics.launch(&batch.iter().map(|(tensor, _)| tensor).collect::<Vec<_>>(), plan());
    match launched {
        Ok(results) => {
            let awaited = batch.into_iter().map(|(_, awaited)| awaited).collect();
            under_way.push_back(Transfer { results, awaited });
        }
        Err(why) if batch.len() == 1 => session.note_error("device", &why, &[]),
        Err(_) => {
            for one in batch {
                launch_batch(statistics, session, vec![one], under_way);
            }
        }
    }
}

fn plan() -> DevicePlan {
    let numbers = [Statistic::Min, Statistic::Max, Statistic::Mean, Statistic::Norm];
    DevicePlan::of(Request { statistics: numbers.into_iter().collect::<StatisticSet>(), eps: 0.0 })
}

/// Copies a tensor to the host, for its checksum or file. Waits for the device.
pub(super) fn on_host(tensor: TensorRef<'_>) -> Option<Tensor> {
    unobserved(|| tch::no_grad(|| tensor.as_tensor().f_to_device(Device::Cpu))).ok()
}
