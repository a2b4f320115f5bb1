//! Operations that have ended for the host, and of which the device has not told when.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::intern;
use pyo3::prelude::*;

use super::host::Host;
use super::open::Open;

/// Operations whose end a device has not told are given up beyond this many.
const MOST_WAITING: usize = 4096;

/// Those that are waited for.
#[derive(Default)]
pub(super) struct OnDevice(Mutex<Vec<Open>>);

impl OnDevice {
    /// Whether the current stream records a graph: a device must not be asked how far it is then.
    pub(super) fn is_capturing(py: Python<'_>, host: &Host) -> bool {
        let Some(clock) = &host.callbacks.device_clock else { return false };
        let told = host.quietly(py, || clock.call_method0(py, intern!(py, "is_capturing"))?.extract::<bool>(py));
        told.unwrap_or(true)
    }

    /// Begins an operation's time on its device; nothing tells it while a graph is recorded.
    pub(super) fn begin(py: Python<'_>, host: &Host, open: &mut Open) -> PyResult<()> {
        if let Some(clock) = &host.callbacks.device_clock {
            let begun = clock.call_method0(py, intern!(py, "begin"))?;
            open.is_untimed = begun.is_none(py);
            open.clock = Some(begun).filter(|begun| !begun.is_none(py));
        }
        Ok(())
    }

    /// Marks the end of an operation on its device; whether that will tell when it is there.
    pub(super) fn ends(py: Python<'_>, host: &Host, open: &Open) -> bool {
        let (Some(clock), Some(begun)) = (&host.callbacks.device_clock, &open.clock) else { return false };
        let told = host.quietly(py, || clock.call_method1(py, intern!(py, "end"), (begun,))?.extract::<bool>(py));
        told == Some(true)
    }

    /// Keeps an operation until its device has told when it ended.
    pub(super) fn wait_for(&self, open: Open) {
        let mut waiting = self.lock();
        if waiting.len() < MOST_WAITING {
            waiting.push(open);
        } else {
            open.guard.release();
        }
    }

    /// Books what has been told since. For how long the device waited for other ranks is not known.
    pub(super) fn settle(&self, py: Python<'_>, host: &Host) {
        let Some(clock) = &host.callbacks.device_clock else { return };
        for mut open in self.take() {
            open.measure_received(py, host);
            let seconds = host.quietly(py, || {
                let told = clock.call_method1(py, intern!(py, "seconds"), (open.clock.as_ref(),))?;
                told.extract::<Option<f64>>(py)
            });
            match seconds.flatten().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
                Some(duration) => drop(open.guard.end(duration, None)),
                None => self.lock().push(open),
            }
        }
    }

    /// All of them.
    pub(super) fn take(&self) -> Vec<Open> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
