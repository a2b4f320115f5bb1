//! An operation that begins outside the methods of a process group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::open::Open;
use super::state::State;

/// An operation that no method announces, held by the caller that reports it.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct OpenCall {
    state: Arc<State>,
    open: Mutex<Option<Open>>,
}

impl OpenCall {
    pub(super) fn new(state: Arc<State>, open: Open) -> Self {
        Self { state, open: Mutex::new(Some(open)) }
    }

    /// Takes the operation, once. The lock is released before the operation is used: measuring releases the interpreter,
    /// which a thread waiting for the lock could hold.
    fn take(&self) -> Option<Open> {
        self.open.lock().take()
    }
}

#[pymethods]
impl OpenCall {
    /// Ends the operation and ignores the arguments. May be called from any thread: measures nothing.
    #[pyo3(signature = (*_arguments))]
    fn ended(&self, py: Python<'_>, _arguments: &Bound<'_, PyTuple>) {
        if let Some(open) = self.take() {
            self.state.end_elsewhere(py, open);
        }
    }

    /// Ends the operation after a wait of `waited` seconds. `received`: its results, if they are not arguments.
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

    /// Discards the operation: its end will not be reported.
    fn release(&self) {
        if let Some(open) = self.take() {
            open.guard.release();
        }
    }
}
