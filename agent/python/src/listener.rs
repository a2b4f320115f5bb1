//! The output of the monitor's messages: the caller's function, else Python's `logging` if the script has configured it,
//! else standard error.

use pyo3::prelude::*;
use trainmon_agent::{Notice, Notices, Severity};

use crate::discard_error::discard;
use crate::exit::{is_terminating, with_python};

/// Returns the notices of a monitor, which call `listener(severity, message, hint)` if there is one.
pub(crate) fn notices(py: Python<'_>, listener: Option<Py<PyAny>>) -> Notices {
    if let Some(listener) = listener {
        return heard_by(move |notice| with_python(|py| call(py, &listener, notice).is_some()).unwrap_or(false));
    }
    let route = py.import("trainmon.common.notices").and_then(|notices| notices.getattr("route"));
    match route.map(Bound::unbind) {
        Ok(route) => heard_by(move |notice| {
            // After SIGTERM no thread may wait for the interpreter: a hanging training may hold it.
            if is_terminating() {
                return false;
            }
            with_python(|py| call(py, &route, notice).is_some_and(|answer| answer.is_truthy().unwrap_or(false)))
                .unwrap_or(false)
        }),
        Err(error) => {
            discard(py, error);
            Notices::stderr()
        }
    }
}

/// Returns notices that go to standard error unless `hears` accepts them.
fn heard_by(hears: impl Fn(&Notice) -> bool + Send + Sync + 'static) -> Notices {
    Notices::new(move |notice| {
        if !hears(notice) {
            notice.print();
        }
    })
}

/// Calls the listener and returns its result; `None` if it raised.
fn call<'py>(py: Python<'py>, listener: &Py<PyAny>, notice: &Notice) -> Option<Bound<'py, PyAny>> {
    // The host's own exception may be in flight, for example when an object is dropped.
    let hosts_own = PyErr::take(py);
    let severity = severity_name(notice.severity);
    let result = listener.bind(py).call1((severity, &notice.message, &notice.hint));
    let answer = result.map_err(|error| discard(py, error)).ok();
    if let Some(error) = hosts_own {
        error.restore(py);
    }
    answer
}

/// Returns the name of a severity in Python.
pub(crate) fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
    }
}
