//! The class `DeviceKernels`: the kernels of one device.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use trainmon_device::{Factor, Kernels, LaunchError, One, Statistics, Words};

use super::tables::{PyDeviceTable, Shown, row_of};

/// The kernels of one device.
#[pyclass(frozen, name = "DeviceKernels", module = "trainmon._trainmon")]
pub(crate) struct PyDeviceKernels(Kernels);

fn raised(error: &LaunchError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn factor_of(number: f64, at: Option<(u64, bool)>) -> Factor {
    match at {
        None => Factor::Number(number),
        Some((address, true)) => Factor::Float64At(address),
        Some((address, false)) => Factor::Float32At(address),
    }
}

// _trainmon.pyi declares the signatures and documents each method.
#[pymethods]
impl PyDeviceKernels {
    #[new]
    fn load(py: Python<'_>, device: u32) -> PyResult<Self> {
        py.detach(|| Kernels::load(device)).map(Self).map_err(|error| raised(&error))
    }

    #[pyo3(signature = (table, memory, stream, factor = 1.0, factor_at = None))]
    fn measure(
        &self,
        table: &PyDeviceTable,
        memory: (u64, u64, u64),
        stream: u64,
        factor: f64,
        factor_at: Option<(u64, bool)>,
    ) -> PyResult<u32> {
        let (words, found, out) = memory;
        let of = Statistics { table: table.0, words, found, out, factor: factor_of(factor, factor_at) };
        // SAFETY: required by `_trainmon.pyi`.
        #[expect(unsafe_code, reason = "addresses on a device")]
        let launched = unsafe { self.0.measure(&of, stream) };
        launched.map_err(|error| raised(&error))
    }

    #[pyo3(signature = (shown, memory, room, stream, factor = 1.0, factor_at = None))]
    #[expect(clippy::needless_pass_by_value, reason = "Python passes owned values")]
    fn measure_one(
        &self,
        shown: Shown<'_>,
        memory: (u64, u64, u64, u64),
        room: u64,
        stream: u64,
        factor: f64,
        factor_at: Option<(u64, bool)>,
    ) -> PyResult<bool> {
        let (words, chunks, found, out) = memory;
        let Some(row) = row_of(&shown)?.filter(|row| row.chunks() <= room) else { return Ok(false) };
        let of = One { row, words, chunks, found, out, factor: factor_of(factor, factor_at) };
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "addresses on a device")]
        let launched = unsafe { self.0.measure_one(&of, stream) };
        launched.map(|_launches| true).map_err(|error| raised(&error))
    }

    fn copy(&self, table: &PyDeviceTable, words: u64, stream: u64) -> PyResult<u32> {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "addresses on a device")]
        let launched = unsafe { self.0.copy(table.0, words, stream) };
        launched.map_err(|error| raised(&error))
    }

    fn fingerprint(&self, rows: (u64, u64), chunks: (u64, u64), sums: u64, out: u64, stream: u64) -> PyResult<u32> {
        let of = Words { rows: rows.0, tensors: rows.1, chunks: chunks.0, count: chunks.1, sums, out };
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "addresses on a device")]
        let launched = unsafe { self.0.fingerprint(&of, stream) };
        launched.map_err(|error| raised(&error))
    }
}
