//! The classes `DeviceTables` and `DeviceTable`: tensors as rows of a table.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyTuple};
use trainmon_agent::core::{Dtype, Shape};
use trainmon_agent::front::{DeviceColumn, DevicePlan, Label};
use trainmon_agent::stats::Request;
use trainmon_device::{Row, Shows, Spread, Table, Tables};

use super::exchange::Exchange;
use crate::arguments::label;
use crate::device_block::{Entry, PyDeviceBlock};
use crate::monitor::PyMonitor;
use crate::tensor::{Layout, layout_anywhere};
use crate::torch::Torch;

/// The tables of one device and stream.
#[pyclass(frozen, name = "DeviceTables", module = "trainmon._trainmon")]
#[derive(Default)]
pub(crate) struct PyDeviceTables {
    state: Mutex<State>,
    /// Torch's exchange interface, if it has one.
    exchange: PyOnceLock<Option<Exchange>>,
}

#[derive(Default)]
struct State {
    tables: Tables,
    /// The rows of the next table; kept to reuse the memory.
    rows: Vec<Row>,
    /// Tensors whose attributes were all checked, by address: torch's exchange interface reports neither pending negations
    /// nor the size of the memory.
    known: HashMap<u64, (Dtype, Spread), RandomState>,
}

/// The maximum number of tensors known to be readable; beyond it they are checked again.
const MOST_KNOWN: usize = 1 << 16;

impl State {
    /// Returns a tensor's layout, if a kernel can read it on that device.
    fn find(
        &mut self,
        exchange: Option<Exchange>,
        device: &Bound<'_, PyAny>,
        tensor: &Bound<'_, PyAny>,
    ) -> Option<Place> {
        let found = exchange.and_then(|exchange| exchange.read(tensor));
        let quick = found.as_ref().and_then(|found| Some((found.address, found.dtype, found.shape, found.spread?)));
        if let Some(place @ (address, dtype, _, spread)) = quick
            && self.known.get(&address) == Some(&(dtype, spread))
        {
            return Some(place);
        }
        if !tensor.getattr(intern!(tensor.py(), "device")).ok()?.eq(device).ok()? {
            return None;
        }
        let (layout, spread) = readable(tensor)?;
        let (address, dtype) = (layout.address as u64, layout.dtype);
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        self.known.insert(address, (dtype, spread));
        Some((address, dtype, layout.shape, spread))
    }
}

/// Address, type, sizes, and layout of the elements.
type Place = (u64, Dtype, Shape, Spread);

fn asked(request: Request) -> (Option<f64>, bool) {
    let plan = DevicePlan::of(request);
    (plan.contains(DeviceColumn::Zeros).then_some(plan.eps), plan.contains(DeviceColumn::Std))
}

/// Reads a label from `(tensor_id, kind, micro_step)`, one by one: extracting the whole tuple costs twice as much.
fn label_of(numbers: &Bound<'_, PyAny>) -> PyResult<Label> {
    let numbers = numbers.cast::<PyTuple>()?;
    let number = |place| numbers.get_borrowed_item(place);
    Ok(label(number(0)?.extract()?, number(1)?.extract()?, number(2)?.extract()?))
}

/// A table of one launch.
#[pyclass(frozen, name = "DeviceTable", module = "trainmon._trainmon")]
pub(crate) struct PyDeviceTable(pub(super) Table);

/// A tensor, the tensor to compare with or copy into, a value of `Shows`, eps if zeros are counted, and whether std is
/// requested.
pub(super) type Shown<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, u8, Option<f64>, bool);

/// Returns the row of a tensor; `None` if only torch's operators can read it.
pub(super) fn row_of((tensor, other, shows, eps, std): &Shown<'_>) -> PyResult<Option<Row>> {
    let shows = match *shows {
        0 => Shows::Values,
        1 => Shows::Difference,
        2 => Shows::Agreement,
        3 => Shows::Copy,
        found => return Err(PyValueError::new_err(format!("shows: expected 0 to 3, found {found}"))),
    };
    if other.is_some() != (shows != Shows::Values) {
        return Err(PyValueError::new_err(
            "a difference, an agreement or a copy requires two tensors; values require one",
        ));
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
    if shows == Shows::Copy && !is_copied(dtype, other, spread) {
        return Ok(None);
    }
    Ok(Some(Row { address, spread, dtype, other, shows, eps: *eps, std: *std }))
}

/// Whether the kernel can copy such elements. Another dtype would require a conversion, and an expanded tensor would be
/// written more than once.
fn is_copied(dtype: Dtype, other: Option<(u64, Dtype)>, spread: Spread) -> bool {
    other.is_some_and(|(_, of)| of == dtype) && dtype.size() <= 8 && spread.times == 1
}

/// Returns the layout of a tensor, if a kernel can read it.
fn readable(tensor: &Bound<'_, PyAny>) -> Option<(Layout, Spread)> {
    let layout = layout_anywhere(tensor).ok()?;
    let spread = Spread::of(layout.shape.dims(), layout.strides())?;
    let is_there = layout.address != 0 && layout.address.is_multiple_of(layout.dtype.align());
    (spread.elements == 0 || is_there).then_some((layout, spread))
}

// _trainmon.pyi declares the signatures and documents each method.
#[pymethods]
#[expect(clippy::needless_pass_by_value, reason = "Python passes owned values")]
impl PyDeviceTables {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn of(&self, shown: Vec<Shown<'_>>) -> PyResult<(PyDeviceTable, Vec<usize>)> {
        let rows: Vec<Option<Row>> = shown.iter().map(row_of).collect::<PyResult<_>>()?;
        let left_out = rows.iter().enumerate().filter(|(_, row)| row.is_none()).map(|(place, _)| place).collect();
        let mut state = self.state.lock();
        let State { tables, rows: kept, .. } = &mut *state;
        kept.clear();
        kept.extend(rows.into_iter().flatten());
        Ok((PyDeviceTable(tables.of(kept)), left_out))
    }

    fn of_all(
        &self,
        py: Python<'_>,
        monitor: &PyMonitor,
        device: &Bound<'_, PyAny>,
        shown: &Bound<'_, PyList>,
        uncounted: HashSet<usize, RandomState>,
    ) -> PyResult<(PyDeviceTable, PyDeviceBlock, Vec<usize>)> {
        let torch = Torch::loaded(py)?.ok_or_else(|| PyValueError::new_err("torch is not imported"))?;
        let exchange = *self.exchange.get_or_init(py, || Exchange::of(py, torch));
        let (mut entries, mut left_out) = (Vec::with_capacity(shown.len()), Vec::new());
        let mut state = self.state.lock();
        state.rows.clear();
        // The records are grouped by kind.
        let mut last = None;
        for (position, record) in shown.iter().enumerate() {
            let record = record.cast::<PyTuple>()?;
            let (label, tensor) = (label_of(&*record.get_borrowed_item(0)?)?, &*record.get_borrowed_item(1)?);
            let Some(request) = monitor.shared().monitor.request_now(label) else { continue };
            let quickly = exchange.filter(|_| torch.is_plain(tensor));
            let Some((address, dtype, shape, spread)) = state.find(quickly, device, tensor) else {
                left_out.push(position);
                continue;
            };
            let (eps, std) = match last {
                Some((of, asked)) if of == request => asked,
                _ => asked(request),
            };
            last = Some((request, (eps, std)));
            state.rows.push(Row { address, spread, dtype, other: None, shows: Shows::Values, eps, std });
            entries.push(Entry { label, dtype, shape, counts: !uncounted.contains(&position), is_retracted: false });
        }
        let State { tables, rows, .. } = &mut *state;
        Ok((PyDeviceTable(tables.of(rows)), PyDeviceBlock::new(entries), left_out))
    }

    fn words<'py>(&self, py: Python<'py>, table: &PyDeviceTable) -> Bound<'py, PyBytes> {
        let state = self.state.lock();
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
