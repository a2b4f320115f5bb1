//! What stands in for the methods of `Work` by which a caller learns that an operation has ended.

use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::announced::OpenCall;
use super::state::State;

/// What the state knows a work by: the method's first argument. 0 is none.
fn key_of(args: &Bound<'_, PyTuple>) -> usize {
    args.get_item(0).map_or(0, |work| work.as_ptr() as usize)
}

/// `Work.wait`, called with the work first. Gives what the original gives.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct WaitMethod {
    state: Arc<State>,
    original: Py<PyAny>,
}

impl WaitMethod {
    pub(super) fn new(state: Arc<State>, original: Py<PyAny>) -> Self {
        Self { state, original }
    }
}

#[pymethods]
impl WaitMethod {
    /// Whatever else is asked of it, its name say, is the original's.
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
        let original = self.original.bind(py);
        let entered = Instant::now();
        let key = key_of(args);
        if !self.state.look_at(py, key, entered) {
            return original.call(args, kwargs);
        }
        let result = original.call(args, kwargs);
        let left = Instant::now();
        match &result {
            Ok(_) => self.state.was_waited_for(py, key, entered, left),
            // Its operation failed, or the time given was too short: it may be waited for again.
            Err(_) => self.state.wait_failed(py, key),
        }
        result
    }
}

/// `Work.get_future`, called with the work first: who takes the future may never wait for the work.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct FutureMethod {
    state: Arc<State>,
    original: Py<PyAny>,
}

impl FutureMethod {
    pub(super) fn new(state: Arc<State>, original: Py<PyAny>) -> Self {
        Self { state, original }
    }
}

#[pymethods]
impl FutureMethod {
    /// Whatever else is asked of it, its name say, is the original's.
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
        let future = self.original.bind(py).call(args, kwargs)?;
        let key = key_of(args);
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
