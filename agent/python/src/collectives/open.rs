//! An operation in progress, and what is measured of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use trainmon_agent::core::{Shape, TensorStats};
use trainmon_agent::stats::{Request, measure};
use trainmon_agent::{CollectiveGuard, Slot, stacked_shape};

use super::arguments::{Argument, each_tensor};
use super::state::State;
use crate::tensor::HostTensor;
use crate::torch::Torch;

/// An operation in progress.
pub(super) struct Open {
    pub(super) guard: CollectiveGuard,
    /// What is measured when it has ended; empty where nothing is.
    tensors: Vec<(u8, Py<PyAny>)>,
    /// What a device tells its time by.
    pub(super) clock: Option<Py<PyAny>>,
    /// When the call returned.
    pub(super) returned: Instant,
    /// When it was first seen to have ended.
    pub(super) completed: Option<Instant>,
    /// For how long the caller has waited for it, where it has.
    pub(super) waited: Option<Duration>,
}

impl Open {
    /// Takes up a call whose time has not begun: measures what goes in, and keeps what is measured afterwards.
    pub(super) fn new(
        py: Python<'_>,
        state: &State,
        guard: CollectiveGuard,
        arguments: &[&Argument<'_>],
    ) -> PyResult<Self> {
        let mut open =
            Self { guard, tensors: Vec::new(), clock: None, returned: Instant::now(), completed: None, waited: None };
        if open.guard.measures_payload() {
            // In the order of the function's arguments.
            let mut arguments = arguments.to_vec();
            arguments.sort_by_key(|argument| argument.slot);
            for argument in arguments {
                open.measure(py, state, Slot::Pre(argument.slot), &argument.value)?;
                open.tensors.push((argument.slot, argument.value.clone().unbind()));
            }
        }
        Ok(open)
    }

    /// Ends its time, then measures what it has received.
    pub(super) fn end(mut self, py: Python<'_>, state: &State, at: Instant, waited: Option<Duration>) {
        self.end_time(at, waited);
        self.measure_received(py, state);
    }

    /// Books when it ended; what it has received may still be measured.
    pub(super) fn end_time(&mut self, at: Instant, waited: Option<Duration>) {
        let duration = at.saturating_duration_since(self.guard.started());
        self.guard.end(duration, waited);
    }

    /// Measures what it has received, if that is asked for.
    pub(super) fn measure_received(&mut self, py: Python<'_>, state: &State) {
        for (slot, value) in std::mem::take(&mut self.tensors) {
            state.quietly(py, || self.measure(py, state, Slot::Post(slot), value.bind(py)));
        }
    }

    /// Whether there is something left to measure.
    pub(super) fn has_payload(&self) -> bool {
        !self.tensors.is_empty()
    }

    fn measure(&self, py: Python<'_>, state: &State, slot: Slot, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(request) = self.guard.request(slot) else { return Ok(()) };
        let Some(torch) = Torch::loaded(py)? else { return Ok(()) };
        let start = Instant::now();
        let (mut found, mut bytes, mut on_device) = (Vec::new(), 0, None);
        each_tensor(torch, value, &mut |tensor| {
            match read(tensor, request) {
                Some((stats, read)) => {
                    found.push(stats);
                    bytes += read;
                }
                None => on_device = Some(tensor.clone()),
            }
            Ok(())
        })?;
        if let Some(tensor) = on_device {
            // One tensor alone: of several there is no device to put them together.
            return match self.guard.label(slot).filter(|_| found.is_empty()) {
                Some(label) => state.measure_on_device(py, label, &tensor),
                None => Ok(()),
            };
        }
        let shapes: Vec<Shape> = found.iter().map(|stats| stats.shape).collect();
        if !found.is_empty() {
            let stats = TensorStats::of_several(&found, stacked_shape(&shapes));
            self.guard.record(slot, stats, start, bytes);
        }
        Ok(())
    }
}

/// What a host tensor holds, and how many bytes that took; `None` for any other.
fn read(tensor: &Bound<'_, PyAny>, request: Request) -> Option<(TensorStats, u64)> {
    let tensor = HostTensor::describe(tensor).ok()?;
    let stats = tensor.read(|view| measure(view, request)).ok()?;
    Some((stats, tensor.layout.bytes() as u64))
}

/// An operation that no method announces, in the hands of who does.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct OpenCall {
    state: Arc<State>,
    open: Mutex<Option<Open>>,
}

impl OpenCall {
    pub(super) fn new(state: Arc<State>, open: Open) -> Self {
        Self { state, open: Mutex::new(Some(open)) }
    }

    fn take(&self) -> Option<Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl OpenCall {
    /// It has ended, whatever the arguments. May come from any thread: nothing is measured here.
    #[pyo3(signature = (*_arguments))]
    fn ended(&self, _arguments: &Bound<'_, PyTuple>) {
        let Some(mut open) = self.take() else { return };
        open.end_time(Instant::now(), None);
        if open.has_payload() {
            self.state.keep_received(open);
        }
    }

    /// It has ended, and the caller waited for it for so many seconds.
    fn ended_after(&self, py: Python<'_>, waited: f64) {
        if let Some(open) = self.take() {
            let waited = Duration::try_from_secs_f64(waited).unwrap_or_default();
            open.end(py, &self.state, Instant::now(), Some(waited));
        }
    }

    /// Nobody will tell when it ends.
    fn release(&self) {
        if let Some(open) = self.take() {
            open.guard.release();
        }
    }
}
