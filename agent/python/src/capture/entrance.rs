//! Entry points of functions, which receive the arguments as the caller passed them.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::capture::shared::Shared;
use crate::capture::thread::{self, Announced, Busy};

/// Replaces a torch function during a capture: announces the call, then makes it.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct Entrance {
    shared: Arc<Shared>,
    /// The operator's number; `None` if calls from here are not captured.
    operator: Option<usize>,
    /// The function with which the mode is called.
    target: usize,
    original: Py<PyAny>,
}

impl Entrance {
    pub(crate) fn new(
        shared: Arc<Shared>,
        operator: Option<usize>,
        target: &Bound<'_, PyAny>,
        original: Py<PyAny>,
    ) -> Self {
        Self { shared, operator, target: target.as_ptr() as usize, original }
    }
}

#[pymethods]
impl Entrance {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let original = self.original.bind(py);
        if Busy::is_on() || !self.shared.is_on() {
            return original.call(args, kwargs);
        }
        let call = Announced {
            target: self.target,
            operator: self.operator,
            args: args.clone().unbind(),
            kwargs: kwargs.map(|kwargs| kwargs.clone().unbind()),
        };
        let is_announced = thread::announce(call);
        let result = original.call(args, kwargs);
        if is_announced {
            thread::withdraw();
        }
        result
    }
}
