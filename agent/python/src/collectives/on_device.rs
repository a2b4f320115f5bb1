//! Operations that have ended for the host, but whose end on the device is unknown.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;

use super::host::Host;
use super::open::Open;

/// The maximum number of operations whose end on a device is unknown; further ones are discarded.
const MOST_WAITING: usize = 4096;

/// The interval between queries while no step ends. The hang watch may see an ended operation as open for this long.
const LOOK: Duration = Duration::from_secs(1);
/// The number of consecutive open operations after which no more are queried: operations end in order, except on other
/// streams.
const MOST_UNTOLD: usize = 16;

/// The pending operations.
#[derive(Default)]
pub(super) struct OnDevice {
    waiting: Mutex<Vec<Open>>,
    looked: Mutex<Option<Instant>>,
}

impl OnDevice {
    /// Whether the current stream records a graph, during which the device must not be queried.
    pub(super) fn is_capturing(py: Python<'_>, host: &Host) -> bool {
        let Some(clock) = &host.callbacks.device_clock else { return false };
        let told = host.quietly(py, || clock.call_method0(py, intern!(py, "is_capturing"))?.extract::<bool>(py));
        told.unwrap_or(true)
    }

    /// Starts the clock of an operation on its device; while a graph is recorded, there is none.
    pub(super) fn begin(py: Python<'_>, host: &Host, open: &mut Open) -> PyResult<()> {
        if let Some(clock) = &host.callbacks.device_clock {
            let begun = clock.call_method0(py, intern!(py, "begin"))?;
            open.is_untimed = begun.is_none(py);
            open.clock = Some(begun).filter(|begun| !begun.is_none(py));
        }
        Ok(())
    }

    /// Marks the end of an operation on its device; returns whether the end can be queried.
    pub(super) fn ends(py: Python<'_>, host: &Host, open: &Open) -> bool {
        let (Some(clock), Some(begun)) = (&host.callbacks.device_clock, &open.clock) else { return false };
        let told = host.quietly(py, || clock.call_method1(py, intern!(py, "end"), (begun,))?.extract::<bool>(py));
        told == Some(true)
    }

    /// Keeps an operation until its end on the device is known.
    pub(super) fn wait_for(&self, open: Open) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < MOST_WAITING {
            waiting.push(open);
        } else {
            open.guard.release();
        }
    }

    /// Counts operations that have ended on the device since. The device's wait for other ranks is unknown.
    pub(super) fn settle(&self, py: Python<'_>, host: &Host) {
        let Some(clock) = &host.callbacks.device_clock else { return };
        for mut open in self.take() {
            open.measure_received(py, host);
            match told(py, host, clock, &open) {
                Some(duration) => drop(open.guard.end(duration, None)),
                None => self.waiting.lock().push(open),
            }
        }
    }

    /// Counts operations that have ended on the device since, at most once a second. Called when an operation begins:
    /// during an evaluation of minutes, ended operations must not look like a hang. Tensors to be measured wait for the end
    /// of the step, because this may be any thread.
    pub(super) fn settle_if_due(&self, py: Python<'_>, host: &Host) {
        let Some(clock) = &host.callbacks.device_clock else { return };
        let now = Instant::now();
        if self.waiting.lock().is_empty() || !self.is_due(now) || Self::is_capturing(py, host) {
            return;
        }
        let (mut left, mut untold) = (Vec::new(), 0);
        for mut open in self.take() {
            if untold == MOST_UNTOLD || open.has_payload() {
                left.push(open);
            } else if let Some(duration) = told(py, host, clock, &open) {
                untold = 0;
                open.guard.end(duration, None);
            } else {
                untold += 1;
                left.push(open);
            }
        }
        let mut waiting = self.waiting.lock();
        left.append(&mut waiting);
        *waiting = left;
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut looked = self.looked.lock();
        let is_due = looked.is_none_or(|before| now.saturating_duration_since(before) >= LOOK);
        if is_due {
            *looked = Some(now);
        }
        is_due
    }

    /// Takes all waiting operations.
    pub(super) fn take(&self) -> Vec<Open> {
        std::mem::take(&mut *self.waiting.lock())
    }
}

/// Returns the duration of an operation, once its device has measured it.
fn told(py: Python<'_>, host: &Host, clock: &Py<PyAny>, open: &Open) -> Option<Duration> {
    let seconds = host.quietly(py, || {
        let told = clock.call_method1(py, intern!(py, "seconds"), (open.clock.as_ref(),))?;
        told.extract::<Option<f64>>(py)
    });
    Duration::try_from_secs_f64(seconds.flatten()?).ok()
}
