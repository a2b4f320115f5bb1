//! Python exceptions that must not reach the host.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// Lets go of an exception. A Ctrl-C that arrived just then is the host's: it is asked for again, to be raised there.
pub(crate) fn swallow(py: Python<'_>, error: PyErr) {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        let again = py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main"));
        // Python cannot be asked for anything more.
        drop(again);
    }
    drop(error);
}
