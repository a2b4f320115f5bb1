//! The classes `DeviceTables` and `DeviceTable`: tensors as rows of a table.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};
use trainmon_device::{Row, Shows, Spread, Table, Tables};

use crate::tensor::{Layout, layout_anywhere};

/// The tables of one device and stream.
#[pyclass(frozen, name = "DeviceTables", module = "trainmon._trainmon")]
#[derive(Default)]
pub(crate) struct PyDeviceTables(Mutex<State>);

#[derive(Default)]
struct State {
    tables: Tables,
    /// Of the table in the making; kept for its memory.
    rows: Vec<Row>,
}

/// One of them.
#[pyclass(frozen, name = "DeviceTable", module = "trainmon._trainmon")]
pub(crate) struct PyDeviceTable(pub(super) Table);

/// A tensor, what it is held against, which of `Shows` is measured, eps if zeros are counted, whether std is wanted.
type Shown<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, u8, Option<f64>, bool);

/// Its row; `None` where only torch's operators can read it.
fn row_of((tensor, other, shows, eps, std): &Shown<'_>) -> PyResult<Option<Row>> {
    let shows = match *shows {
        0 => Shows::Values,
        1 => Shows::Difference,
        2 => Shows::Agreement,
        found => return Err(PyValueError::new_err(format!("shows: expected 0, 1 or 2, found {found}"))),
    };
    if other.is_some() != (shows != Shows::Values) {
        return Err(PyValueError::new_err("a difference and an agreement are of two tensors, values of one"));
    }
    let Some((layout, spread)) = readable(tensor) else { return Ok(None) };
    let held = match other {
        None => None,
        Some(other) => match readable(other) {
            Some((held, _)) if held.shape == layout.shape && held.strides() == layout.strides() => Some(held),
            _ => return Ok(None),
        },
    };
    let other = held.map(|held| (held.address as u64, held.dtype));
    let (address, dtype) = (layout.address as u64, layout.dtype);
    Ok(Some(Row { address, spread, dtype, other, shows, eps: *eps, std: *std }))
}

/// Where a tensor lies, and how, if a kernel can walk through it.
fn readable(tensor: &Bound<'_, PyAny>) -> Option<(Layout, Spread)> {
    let layout = layout_anywhere(tensor).ok()?;
    let spread = Spread::of(layout.shape.dims(), layout.strides())?;
    let is_there = layout.address != 0 && layout.address.is_multiple_of(layout.dtype.align());
    (spread.elements == 0 || is_there).then_some((layout, spread))
}

// The signatures are Python's: see _trainmon.pyi, which also says what each method does.
#[pymethods]
#[expect(clippy::needless_pass_by_value, reason = "what Python hands over is owned")]
impl PyDeviceTables {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn of(&self, shown: Vec<Shown<'_>>) -> PyResult<(PyDeviceTable, Vec<usize>)> {
        let rows: Vec<Option<Row>> = shown.iter().map(row_of).collect::<PyResult<_>>()?;
        let left_out = rows.iter().enumerate().filter(|(_, row)| row.is_none()).map(|(place, _)| place).collect();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { tables, rows: kept } = &mut *state;
        kept.clear();
        kept.extend(rows.into_iter().flatten());
        Ok((PyDeviceTable(tables.of(kept)), left_out))
    }

    fn words<'py>(&self, py: Python<'py>, table: &PyDeviceTable) -> Bound<'py, PyBytes> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words = state.tables.words(table.0);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        PyBytes::new(py, &bytes)
    }
}

#[pymethods]
impl PyDeviceTable {
    #[getter]
    fn number(&self) -> usize {
        self.0.number
    }

    #[getter]
    fn is_new(&self) -> bool {
        self.0.is_new
    }

    #[getter]
    fn rows(&self) -> usize {
        self.0.rows
    }

    #[getter]
    fn single_chunks(&self) -> u64 {
        self.0.single_chunks
    }

    #[getter]
    fn pair_chunks(&self) -> u64 {
        self.0.pair_chunks
    }
}
