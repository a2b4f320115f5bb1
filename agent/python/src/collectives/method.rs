//! The replacement for a method of a process group.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use trainmon_agent::core::CollectiveOp;

use super::arguments::{Form, What};
use super::nesting;
use super::state::State;

/// A callable that takes the method's arguments, the group first.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct CollectiveMethod {
    state: Arc<State>,
    original: Py<PyAny>,
    form: Form,
}

impl CollectiveMethod {
    pub(super) fn new(state: Arc<State>, original: Py<PyAny>, form: Form) -> Self {
        Self { state, original, form }
    }
}

#[pymethods]
impl CollectiveMethod {
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
        let original = self.original.bind(py);
        if nesting::is_inside() || self.state.is_off() {
            return original.call(args, kwargs);
        }
        let open = match self.form.what {
            What::Operation(_) => self.state.begin(py, &self.form, args, kwargs),
            What::StartOfGroup | What::EndOfGroup => None,
        };
        nesting::enter();
        let result = match self.form.what {
            What::Operation(CollectiveOp::AllReduce) => self.state.kernel_bypass.call(original, args, kwargs),
            _ => original.call(args, kwargs),
        };
        nesting::leave();
        // If the call raised, the operation is dropped, which counts it as failed.
        let work = result?;
        match (self.form.what, open) {
            (What::StartOfGroup, _) => self.state.group_begins(args),
            (What::EndOfGroup, _) => self.state.group_ends(py, args, &work),
            (What::Operation(_), Some(open)) => self.state.returned(py, args, &work, open),
            (What::Operation(_), None) => {}
        }
        Ok(work)
    }
}
