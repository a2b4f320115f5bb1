//! The Python exception for an invalid config.

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use trainmon_agent::core::config::{ConfigErrors, Diagnostic};

pyo3::create_exception!(
    trainmon._trainmon,
    ConfigError,
    PyValueError,
    "A config file that cannot be read or is invalid. The text lists every error with its location and a hint."
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
