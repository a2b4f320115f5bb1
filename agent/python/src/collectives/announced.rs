//! An operation that no method announces.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::open::Open;
use super::state::State;

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

    /// Once. The lock is free again before anything is done with it: measuring gives the interpreter away, and another thread
    /// that waits for the lock would keep it.
    fn take(&self) -> Option<Open> {
        self.open.lock().take()
    }
}

#[pymethods]
impl OpenCall {
    /// It has ended, whatever the arguments. May come from any thread: nothing is measured here.
    #[pyo3(signature = (*_arguments))]
    fn ended(&self, py: Python<'_>, _arguments: &Bound<'_, PyTuple>) {
        if let Some(open) = self.take() {
            self.state.end_elsewhere(py, open);
        }
    }

    /// It has ended, and the caller waited for it for so many seconds. `received`: what it gives, where that is no argument.
    #[pyo3(signature = (waited, received))]
    fn ended_after(&self, py: Python<'_>, waited: f64, received: Option<&Bound<'_, PyAny>>) {
        if let Some(mut open) = self.take() {
            if let Some(received) = received {
                open.receive(received);
            }
            let waited = Duration::try_from_secs_f64(waited).unwrap_or_default();
            self.state.end(py, open, Instant::now(), Some(waited));
        }
    }

    /// Nobody will tell when it ends.
    fn release(&self) {
        if let Some(open) = self.take() {
            open.guard.release();
        }
    }
}
