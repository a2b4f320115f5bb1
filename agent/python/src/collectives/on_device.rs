//! Operations that have ended for the host, and of which the device has not told when.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;

use super::host::Host;
use super::open::Open;

/// Operations whose end a device has not told are given up beyond this many.
const MOST_WAITING: usize = 4096;

/// Between looks at them while no step ends: what the hang watch counts as in progress is at most this much older.
const LOOK: Duration = Duration::from_secs(1);
/// After so many in a row that a device has not told of no more are asked: they end in the order in which they began, but
/// for those of other streams.
const MOST_UNTOLD: usize = 16;

/// Those that are waited for.
#[derive(Default)]
pub(super) struct OnDevice {
    waiting: Mutex<Vec<Open>>,
    looked: Mutex<Option<Instant>>,
}

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
        let mut waiting = self.waiting.lock();
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
            match told(py, host, clock, &open) {
                Some(duration) => drop(open.guard.end(duration, None)),
                None => self.waiting.lock().push(open),
            }
        }
    }

    /// Between two steps, when an operation begins: books what has been told since, once a second. An evaluation makes
    /// operations for minutes, and those before must not be taken for one that hangs. What is to be measured waits for the
    /// step: this may be any thread.
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

    /// All of them.
    pub(super) fn take(&self) -> Vec<Open> {
        std::mem::take(&mut *self.waiting.lock())
    }
}

/// How long an operation took, once its device has told.
fn told(py: Python<'_>, host: &Host, clock: &Py<PyAny>, open: &Open) -> Option<Duration> {
    let seconds = host.quietly(py, || {
        let told = clock.call_method1(py, intern!(py, "seconds"), (open.clock.as_ref(),))?;
        told.extract::<Option<f64>>(py)
    });
    Duration::try_from_secs_f64(seconds.flatten()?).ok()
}
