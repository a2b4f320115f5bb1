//! The Python exception for a faulty config.

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use trainmon_agent::core::config::{ConfigErrors, Diagnostic};

pyo3::create_exception!(
    trainmon._trainmon,
    ConfigError,
    PyValueError,
    "A config file that cannot be read or is wrong. The text names every fault with its place and a hint."
);

pub(crate) fn config_error(errors: &ConfigErrors) -> PyErr {
    let lines: Vec<String> = errors.errors.iter().map(with_hint).collect();
    ConfigError::new_err(lines.join("\n"))
}

pub(crate) fn with_hint(fault: &Diagnostic) -> String {
    match &fault.hint {
        Some(hint) => format!("{fault}\n  hint: {hint}"),
        None => fault.to_string(),
    }
}
