//! Calls into Python, and the handling of their errors.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use trainmon_agent::front::Label;

use crate::discard_error::{discard, is_of_host};

/// The Python functions that are called.
pub(crate) struct Callbacks {
    /// A process group's `(name, role, ranks, operations before)`.
    pub(crate) describe: Py<PyAny>,
    /// `(line, is recorded)` of the call in progress; None if lines are not requested.
    pub(crate) caller: Option<Py<PyAny>>,
    /// The clock of a device: `begin()`, `end(clock)`, `seconds(clock)`.
    pub(crate) device_clock: Option<Py<PyAny>>,
    /// Measures a tensor on a device: `(tensor id, kind, micro step, tensor)`. A tensor of None stands for several, which
    /// count as not measured.
    pub(crate) measure_on_device: Option<Py<PyAny>>,
    /// Called once, with the error, when a hook is switched off.
    pub(crate) failed: Py<PyAny>,
}

/// Calls into Python, until one fails.
pub(super) struct Host {
    pub(super) callbacks: Callbacks,
    is_off: AtomicBool,
}

impl Host {
    pub(super) fn new(callbacks: Callbacks) -> Self {
        Self { callbacks, is_off: AtomicBool::new(false) }
    }

    /// Whether it was closed, or switched off after a failure.
    pub(super) fn is_off(&self) -> bool {
        self.is_off.load(Ordering::Relaxed)
    }

    pub(super) fn switch_off(&self) {
        self.is_off.store(true, Ordering::Relaxed);
    }

    /// Whether there is a device clock. Without one, no tensor is on a device.
    pub(super) fn has_device_clock(&self) -> bool {
        self.callbacks.device_clock.is_some()
    }

    /// Runs `body`. An error is reported once and switches all hooks off. An exception for the host (from a signal handler
    /// that ran meanwhile) does not count as a failure.
    pub(super) fn quietly<R>(&self, py: Python<'_>, body: impl FnOnce() -> PyResult<R>) -> Option<R> {
        match body() {
            Ok(result) => Some(result),
            Err(error) => {
                if !is_of_host(py, &error) && !self.is_off.swap(true, Ordering::Relaxed) {
                    let told = self.callbacks.failed.call1(py, (error.value(py),));
                    drop(told.map_err(|error| discard(py, error)));
                }
                discard(py, error);
                None
            }
        }
    }

    /// Measures the combined values of an operation's tensors on a device. `tensors` is empty if they cannot be combined.
    pub(super) fn measure_on_device(
        &self,
        py: Python<'_>,
        label: Label,
        tensors: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let Some(measure) = &self.callbacks.measure_on_device else { return Ok(()) };
        measure.call1(py, (label.tensor.0, label.kind as u8, label.micro_step.0, tensors)).map(drop)
    }
}
