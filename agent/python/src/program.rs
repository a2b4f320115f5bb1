//! The command `trainmon` inside Python's process.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs a command line and returns the exit status.
#[pyfunction]
pub(crate) fn run_program(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    // Python's handler only sets a flag, and the interpreter does not run until the command has ended. On other threads
    // than the main one this call raises, and Ctrl-C is handled as usual.
    let before = end_by_interrupt(py).unwrap_or(None);
    let status = py.detach(|| trainmon_cli::run(arguments));
    if let Some(handler) = before {
        let signal = py.import("signal")?;
        signal.call_method1("signal", (signal.getattr("SIGINT")?, handler))?;
    }
    Ok(status)
}

/// Lets SIGINT end the process if Python's default handler is installed; keeps other handlers. Returns the replaced
/// handler.
fn end_by_interrupt(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let signal = py.import("signal")?;
    let number = signal.getattr("SIGINT")?;
    let handler = signal.call_method1("getsignal", (&number,))?;
    if !handler.is(&signal.getattr("default_int_handler")?) {
        return Ok(None);
    }
    signal.call_method1("signal", (number, signal.getattr("SIG_DFL")?))?;
    Ok(Some(handler))
}
