//! Handling of Python exceptions: those that must not reach the host, and those that must.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::{PyBaseException, PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;

/// Drops an exception of trainmon's own code. One that is not an `Exception` comes from the host's signal handler (Ctrl-C,
/// `sys.exit`), which ran during a call into Python. It is passed to the host as soon as that runs again.
pub(crate) fn discard(py: Python<'_>, error: PyErr) {
    if is_of_host(py, &error) {
        hand_to_host(py, error);
    }
}

/// Whether an exception requests the end of the program instead of reporting a failure.
pub(crate) fn is_of_host(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py)
}

/// Passes an exception of a signal handler to the host. Handlers run on the main thread, where the interpreter raises it
/// between two instructions. On other threads the exception is dropped.
fn hand_to_host(py: Python<'_>, error: PyErr) {
    if !is_main_thread(py) {
        return;
    }
    let is_interrupt = error.is_instance_of::<PyKeyboardInterrupt>(py);
    let raised = error.into_value(py).into_ptr();
    #[expect(unsafe_code, reason = "pyo3 has no safe API for pending calls")]
    // SAFETY: the function has the required signature; it receives the one reference that `into_ptr` gave up. If the
    // interpreter's list of pending calls is full, that reference is taken back here.
    let lost = unsafe {
        (pyo3::ffi::Py_AddPendingCall(Some(raise), raised.cast()) != 0).then(|| Bound::from_owned_ptr(py, raised))
    };
    if lost.is_some() && is_interrupt {
        // Triggers the host's handler once more, because no other call into Python is possible.
        drop(py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main")));
    }
}

fn is_main_thread(py: Python<'_>) -> bool {
    let is_main = || {
        let threading = py.import("threading")?;
        threading.call_method0("current_thread")?.eq(threading.call_method0("main_thread")?)
    };
    // If this cannot be determined, the interpreter no longer exists.
    is_main().unwrap_or(false)
}

/// Raises the exception. Called by the interpreter on its main thread.
extern "C" fn raise(raised: *mut c_void) -> c_int {
    #[expect(unsafe_code, reason = "a callback of the interpreter")]
    // SAFETY: the interpreter calls this once, attached, with the reference that was passed to it.
    unsafe {
        let py = Python::assume_attached();
        let raised = Bound::from_owned_ptr(py, raised.cast());
        if let Ok(raised) = raised.cast_into::<PyBaseException>() {
            PyErr::from_value(raised.into_any()).restore(py);
            return -1;
        }
    }
    0
}
