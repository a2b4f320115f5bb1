//! Converts numbers and names from Python to types of the core.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use trainmon_agent::core::{Kind, MicroStep, Phase, Reading, TensorId, TensorStats};
use trainmon_agent::front::Label;

/// A kind, passed as its index in `KINDS`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindNumber(pub(crate) Kind);

impl<'py> FromPyObject<'_, 'py> for KindNumber {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let number: usize = object.extract()?;
        let kind = Kind::ALL.get(number).copied().ok_or_else(|| {
            PyValueError::new_err(format!("kind {number}: expected an index of KINDS, 0 to {}", Kind::ALL.len() - 1))
        });
        kind.map(Self)
    }
}

/// Returns the label for numbers that Python passes.
pub(crate) fn label(tensor: u32, kind: KindNumber, micro_step: u32) -> Label {
    Label { tensor: TensorId(tensor), kind: kind.0, micro_step: MicroStep(micro_step) }
}

/// Returns the reading of numbers computed elsewhere; their number must be that of the kind.
pub(crate) fn reading_of(kind: Kind, values: &[f64]) -> PyResult<Reading> {
    let expected = kind.value_columns().len().max(1);
    match *values {
        [value] if expected == 1 => Ok(Reading::of_kind(kind, TensorStats::of_value(value))),
        [_, _] if expected == 2 => Ok(Reading::of_values(values)),
        _ => {
            let found = values.len();
            Err(PyValueError::new_err(format!("values of {kind}: expected {expected}, found {found}")))
        }
    }
}

/// Returns the phase with this name, if a front may add cost to it.
pub(crate) fn phase_of(name: &str) -> PyResult<Phase> {
    let phases = [Phase::Measure, Phase::Launch, Phase::Offer];
    phases.into_iter().find(|phase| phase.name() == name).ok_or_else(|| {
        PyValueError::new_err(format!("phase `{name}`: expected one of {}", phases.map(Phase::name).join(", ")))
    })
}
