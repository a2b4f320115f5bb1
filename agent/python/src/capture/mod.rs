//! Captures for Python: the core of `trainmon.captures`.
//!
//! The mode (`call`) finds an operator by its identity (`operators`) and writes its values (`values`, `tensors`, `kinds`)
//! and its stack (`stacks`). Hooks call `modules`, `backward` and `backward_pass`. `entrance` receives a function's
//! arguments as its caller passed them. `placing` places calls in `construct.json`, and `gradients` names parameters'
//! gradients. `devices` holds tensors that wait for a device's numbers, and `pending_messages` stores notices until Python
//! can receive them. `thread` is the state of a thread, and `shared` that of the capture.

mod allocations;
mod backward;
mod backward_pass;
mod call;
mod collective;
mod config;
mod devices;
mod entrance;
mod gradients;
mod kinds;
mod modules;
mod operators;
mod pending_messages;
mod placing;
mod saved;
mod shared;
mod stacks;
mod tensors;
mod thread;
mod values;

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trainmon_agent::core::with_causes;
use trainmon_capture::{CapturePlace, CapturePlan, Session, Slice};

pub(crate) use crate::capture::backward_pass::BackwardPass;
use crate::capture::call::Arguments;
pub(crate) use crate::capture::collective::OperatorCall;
pub(crate) use crate::capture::config::PyCaptureConfig;
use crate::capture::devices::Row;
use crate::capture::entrance::Entrance;
pub(crate) use crate::capture::modules::ModuleCall;
use crate::capture::shared::Shared;
use crate::config_error::ConfigError;

fn capture_error(error: &dyn std::error::Error) -> PyErr {
    ConfigError::new_err(with_causes(error))
}

/// The mode that torch calls with every function: the base of `trainmon.captures.mode.Mode`.
#[pyclass(frozen, subclass, module = "trainmon._trainmon")]
pub(crate) struct CallMode(Arc<Shared>);

#[pymethods]
impl CallMode {
    #[new]
    fn new(capture: &PyCapture) -> Self {
        Self(Arc::clone(&capture.0))
    }

    #[pyo3(signature = (function, types, args = None, kwargs = None))]
    fn __torch_function__<'py>(
        &self,
        py: Python<'py>,
        function: &Bound<'py, PyAny>,
        types: &Bound<'py, PyAny>,
        args: Option<Bound<'py, PyTuple>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let args = args.unwrap_or_else(|| PyTuple::empty(py));
        self.0.call(function, types, &args, kwargs)
    }
}

/// The recorder of a capture: the functions that it recognises, and the step in progress.
#[pyclass(frozen, name = "Capture", module = "trainmon._trainmon")]
pub(crate) struct PyCapture(Arc<Shared>);

#[pymethods]
impl PyCapture {
    #[new]
    fn new() -> Self {
        Self(Arc::new(Shared::default()))
    }

    /// Adds a function; returns its number.
    fn add_operator(
        &self,
        function: &Bound<'_, PyAny>,
        prefix: &str,
        api: &str,
        is_seen: bool,
        filled: Vec<usize>,
        filled_keys: Vec<String>,
    ) -> usize {
        self.0.operators.add(function, (prefix, api), (is_seen, false), (filled, filled_keys))
    }

    /// Adds a function that allocates uninitialised memory. It is not an operator, but tensors in that memory are marked.
    fn add_allocation(&self, function: &Bound<'_, PyAny>) {
        self.0.operators.add_allocation(function);
    }

    /// Adds an operator of the dispatcher, whose name has a dot; returns its number.
    fn add_overload(&self, operator: &Bound<'_, PyAny>, prefix: &str, name: &str) -> usize {
        self.0.operators.add(operator, (prefix, name), (false, true), Default::default())
    }

    /// Begins a call whose end the caller reports. Returns `None` if it is not captured.
    #[pyo3(signature = (operator, args, kwargs = None))]
    fn begin_operator(
        &self,
        py: Python<'_>,
        operator: usize,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Option<OperatorCall> {
        self.0.begin_operator(py, operator, &Arguments { args, kwargs, is_plain: false })
    }

    /// Returns the replacement for a function during a capture.
    #[pyo3(signature = (operator, target, original))]
    fn entrance(&self, operator: Option<usize>, target: &Bound<'_, PyAny>, original: Py<PyAny>) -> Entrance {
        Entrance::new(Arc::clone(&self.0), operator, target, original)
    }

    /// Records a call of a function that no mode receives.
    #[pyo3(signature = (operator, function, args, kwargs = None))]
    fn call_operator<'py>(
        &self,
        operator: usize,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0.call_operator(operator, function, args, kwargs)
    }

    fn set_mode(&self, mode: Option<Py<PyAny>>) {
        self.0.set_mode(mode);
    }

    /// Begins a step, or returns the reason why it cannot. `listener` receives a severity, a message and a hint. `rows`
    /// (rows, first, end): records only rows `first` to `end` of tensors that have `rows` rows.
    #[pyo3(signature = (config, step, rank, listener, rows = None))]
    fn begin(
        &self,
        py: Python<'_>,
        config: &PyCaptureConfig,
        step: u64,
        rank: Option<u64>,
        listener: Py<PyAny>,
        rows: Option<(u64, i64, i64)>,
    ) -> PyResult<()> {
        let mut config = config.config().clone();
        config.slice.extend(rows.map(|(size, begin, end)| Slice { dim: 0, begin, end: Some(end), size: Some(size) }));
        let plan = Arc::new(CapturePlan::with_memory(config, self.0.memory.clone()));
        let notices = self.0.pending_messages.notices(listener);
        let opened = Session::open(plan, CapturePlace { step, rank }, notices);
        self.0.pending_messages.tell(py);
        self.0.begin(py, opened.map_err(|error| capture_error(&error))?);
        Ok(())
    }

    /// Sets the expected size of the step's tensors, for progress messages.
    fn expect_bytes(&self, size: u64) {
        if let Some(active) = self.0.opened() {
            active.session.expect_bytes(size);
        }
    }

    /// Sets the object that measures on devices, with a method `take_up(tensor)`, from the next step on.
    fn set_device_numbers(&self, device_numbers: Option<Py<PyAny>>) {
        self.0.set_device_numbers(device_numbers);
    }

    /// Sets the numbers that a device has computed, by the tickets of their tensors.
    #[expect(clippy::needless_pass_by_value, reason = "Python passes owned values")]
    fn fill_numbers(&self, tickets: Vec<u64>, rows: Vec<Row>) {
        if let Some(active) = self.0.opened() {
            active.devices.arrived(&active.session, &tickets, &rows);
        }
    }

    /// Whether a step has begun and not ended.
    #[getter]
    fn is_open(&self) -> bool {
        self.0.opened().is_some()
    }

    /// Whether calls are captured.
    #[getter]
    fn is_on(&self) -> bool {
        self.0.is_on()
    }

    fn switch(&self, is_on: bool) {
        self.0.switch(is_on);
    }

    /// Sets the rank once it is known.
    fn set_rank(&self, py: Python<'_>, rank: u64) -> bool {
        let is_renamed = self.0.opened().is_some_and(|active| active.session.set_rank(rank));
        self.0.pending_messages.tell(py);
        is_renamed
    }

    /// Writes the step's files in their current state.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        let Some(active) = self.0.opened() else { return Ok(()) };
        self.0.await_files(py, &active);
        let made = py.detach(|| active.session.write_documents());
        self.0.pending_messages.tell(py);
        made.map(drop).map_err(|error| capture_error(&error))
    }

    /// Ends the step.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        thread::leave_all_modules();
        let Some(active) = self.0.end(py) else { return Ok(()) };
        self.0.await_files(py, &active);
        let made = py.detach(|| active.session.finish());
        self.0.pending_messages.tell(py);
        made.map(drop).map_err(|error| capture_error(&error))
    }

    /// Sets the function that is called before a call is placed under a parent.
    fn set_parent_check(&self, check: Option<Py<PyAny>>) {
        self.0.set_parent_check(check);
    }

    /// Sets the number of the micro-batch in progress.
    fn set_micro_step(&self, micro_step: u32) {
        if let Some(active) = self.0.active() {
            active.session.micro_step(Some(micro_step));
        }
    }

    /// Sets the parent of this thread's calls; returns the previous one.
    fn set_parent(&self, parent: Option<String>) -> Option<String> {
        if let (Some(active), Some(parent)) = (self.0.active(), &parent)
            && active.has_construct
        {
            let mut entry = active.session.entry(parent);
            entry.under(None);
            entry.append();
        }
        thread::set_parent(parent)
    }

    #[pyo3(signature = (module, args, kwargs = None))]
    fn begin_module(
        &self,
        py: Python<'_>,
        module: &str,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Option<ModuleCall> {
        self.0.pending_messages.tell(py);
        self.0.begin_module(py, module, args, kwargs)
    }

    fn parameter_gradient(&self, py: Python<'_>, module: &str, parameter: &str, gradient: &Bound<'_, PyAny>) {
        self.0.record_parameter_gradient(py, module, parameter, gradient);
    }

    /// Records a value that a script saves, and the gradients of its tensors when they are computed.
    fn save(&self, py: Python<'_>, value: &Bound<'_, PyAny>, name: &str, with_gradients: bool) {
        self.0.save(py, value, name, with_gradients);
        self.0.pending_messages.tell(py);
    }

    /// Returns the entries, bytes, files, and the reason why the capture has stopped, if it has.
    fn progress(&self) -> Option<(u64, u64, u64, Option<String>)> {
        let progress = self.0.opened()?.session.progress();
        Some((progress.entries, progress.bytes, progress.files, progress.stopped))
    }

    /// Returns further numbers: bytes of all tensors among the values, without those that share another's file; files and
    /// bytes that wait to be written; calls that returned a NaN or an infinity.
    fn volume(&self) -> Option<(u64, usize, usize, u64)> {
        let progress = self.0.opened()?.session.progress();
        let tensor_bytes = progress.tensor_bytes.saturating_sub(progress.shared_bytes);
        Some((tensor_bytes, progress.waiting.0, progress.waiting.1, progress.overflows))
    }

    fn note(&self, what: &str, message: &str) {
        self.0.note(what, message);
    }
}
