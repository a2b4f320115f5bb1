//! Where the monitor's words go: to a Python function, or to standard error.

use std::io::Write as _;

use pyo3::prelude::*;
use trainmon_agent::{Notice, Severity, Voice};

use crate::exit::with_python;
use crate::swallow::swallow;

/// The voice of a monitor: `listener(severity, message, hint)` if there is one.
pub(crate) fn voice(listener: Option<Py<PyAny>>) -> Voice {
    let Some(listener) = listener else { return Voice::stderr() };
    Voice::new(move |notice| {
        let is_heard = with_python(|py| call(py, &listener, notice)).unwrap_or(false);
        if !is_heard {
            // There is nobody left to tell if standard error is closed.
            drop(writeln!(std::io::stderr(), "{notice}"));
        }
    })
}

/// Whether the listener heard it out.
fn call(py: Python<'_>, listener: &Py<PyAny>, notice: &Notice) -> bool {
    // The notice may come while the host's own exception is on its way (an object dropped, say).
    let hosts_own = PyErr::take(py);
    let severity = severity_name(notice.severity);
    let result = listener.bind(py).call1((severity, &notice.message, &notice.hint));
    let is_heard = result.map_err(|error| swallow(py, error)).is_ok();
    if let Some(error) = hosts_own {
        error.restore(py);
    }
    is_heard
}

/// The word for a severity.
fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
    }
}
