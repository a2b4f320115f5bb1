//! The replacements for the methods of `Work` that report the end of an operation.

use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::announced::OpenCall;
use super::state::State;

/// The way in which a caller detects an operation's end.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// `Work.wait`.
    Wait,
    /// `Work.get_future`: a caller with the future may never wait for the work.
    Future,
}

/// A method of `Work`, called with the work first. Returns the original's result.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct WorkMethod {
    state: Arc<State>,
    original: Py<PyAny>,
    way: Way,
}

impl WorkMethod {
    pub(super) fn new(state: Arc<State>, original: Py<PyAny>, way: Way) -> Self {
        Self { state, original, way }
    }

    fn wait<'py>(&self, py: Python<'py>, key: usize, call: impl FnOnce() -> Called<'py>) -> Called<'py> {
        let entered = Instant::now();
        if !self.state.look_at(py, key, entered) {
            return call();
        }
        let result = call();
        let left = Instant::now();
        match &result {
            Ok(_) => self.state.was_waited_for(py, key, entered, left),
            // The operation failed, or the timeout was too short and the caller may wait again.
            Err(_) => self.state.wait_failed(py, key),
        }
        result
    }

    fn future<'py>(&self, py: Python<'py>, key: usize, call: impl FnOnce() -> Called<'py>) -> Called<'py> {
        let future = call()?;
        if let Some(open) = self.state.take_pending(key) {
            self.state.quietly(py, || {
                let call = Bound::new(py, OpenCall::new(Arc::clone(&self.state), open))?;
                future.call_method1("add_done_callback", (call.getattr("ended")?,))?;
                Ok(())
            });
        }
        Ok(future)
    }
}

type Called<'py> = PyResult<Bound<'py, PyAny>>;

#[pymethods]
impl WorkMethod {
    /// Returns other attributes, such as the name, from the original.
    fn __getattr__<'py>(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        self.original.bind(name.py()).getattr(name)
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The key of the work in the state; 0 for none.
        let key = args.get_item(0).map_or(0, |work| work.as_ptr() as usize);
        let call = || self.original.bind(py).call(args, kwargs);
        match self.way {
            Way::Wait => self.wait(py, key, call),
            Way::Future => self.future(py, key, call),
        }
    }
}
