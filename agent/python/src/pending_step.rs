//! The class `PendingStep`: readings that arrive after the end of their step.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use trainmon_agent::core::{Dtype, Kind, Reading, Shape, StatisticSet, Step, TensorStats};
use trainmon_agent::front::{DeviceColumn, DeviceRow, Label, Readable as _};
use trainmon_agent::{LateNumber, PendingStep, stacked_shape};

use crate::arguments::{KindNumber, label, reading_of};
use crate::device_block::PyDeviceBlock;
use crate::exit::Detached;
use crate::shared::Shared;
use crate::tensor::{HostTensor, Layout};

/// Holds back one step's batch until `release`, or until the object is destroyed.
#[pyclass(frozen, name = "PendingStep", module = "trainmon._trainmon")]
pub(crate) struct PyPendingStep(Detached<PendingState>);

struct PendingState {
    shared: Arc<Shared>,
    step: Step,
    /// The statistics of each kind in this step: live control may change them before the readings arrive.
    statistics: [StatisticSet; Kind::ALL.len()],
    /// `None` once released.
    pending: Mutex<Option<PendingStep>>,
}

/// A row's tensor id, kind, micro step, dtype and shape.
type RowLabel = (u32, KindNumber, u32, String, Vec<i64>);

/// A tensor's dtype and shape, and its row.
type Part = (String, Vec<i64>, [f64; DeviceColumn::ALL.len()]);

fn stats_of(dtype: &str, dims: &[i64], row: DeviceRow) -> Result<TensorStats, String> {
    let shape = Shape::new(dims).map_err(|error| error.to_string())?;
    let dtype =
        Dtype::from_torch_name(dtype).ok_or_else(|| format!("elements of type `{dtype}` cannot be measured"))?;
    Ok(row.stats(dtype, shape))
}

/// A table of float64 rows in host memory, kept alive by its tensor.
struct Table<'a, 'py> {
    tensor: HostTensor<'a, 'py>,
    rows: usize,
}

impl<'a, 'py> Table<'a, 'py> {
    fn of(object: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        const COLUMNS: usize = DeviceColumn::ALL.len();
        let tensor = HostTensor::describe(object).map_err(|why| PyValueError::new_err(format!("table: {why}")))?;
        let Layout { dtype, shape, .. } = tensor.layout;
        let is_table = dtype == Dtype::F64
            && matches!(shape.dims(), &[_, columns] if columns == COLUMNS as i64)
            && tensor.layout.strides() == [COLUMNS as i64, 1];
        if !is_table {
            let found = format!("{dtype} of shape {:?}", shape.dims());
            let expected = format!("expected contiguous float64 rows of {COLUMNS} columns");
            return Err(PyValueError::new_err(format!("table: {expected}, found {found}")));
        }
        Ok(Self { rows: shape.elements() / COLUMNS, tensor })
    }

    /// Returns `count` rows from `first` on.
    fn rows(&self, first: usize, count: usize) -> PyResult<Vec<DeviceRow>> {
        if first.checked_add(count).is_none_or(|end| end > self.rows) {
            let end = first.saturating_add(count);
            let message = format!("table: rows {first}..{end} are out of range: it has rows 0..{}", self.rows);
            return Err(PyValueError::new_err(message));
        }
        let read = self.tensor.view().map(|view| {
            // SAFETY: the view is contiguous, and every element is inside the tensor's storage.
            #[expect(unsafe_code, reason = "float64 memory of a tensor")]
            let bytes = unsafe { std::slice::from_raw_parts(view.data(), view.size_in_bytes()) };
            let (numbers, _) = bytes.as_chunks::<{ size_of::<f64>() }>();
            let (rows, _) = numbers.as_chunks::<{ DeviceColumn::ALL.len() }>();
            let rows = rows.iter().skip(first).take(count);
            rows.map(|row| DeviceRow(row.map(f64::from_ne_bytes))).collect()
        });
        read.map_err(|why| PyValueError::new_err(format!("table: {why}")))
    }
}

/// Returns the late number with this name.
fn late_number(name: &str) -> PyResult<LateNumber> {
    match name {
        "loss" => Ok(LateNumber::Loss),
        "grad_norm" => Ok(LateNumber::GradNorm),
        "framework_grad_norm" => Ok(LateNumber::FrameworkGradNorm),
        _ => Err(PyValueError::new_err(format!("`{name}`: expected loss, grad_norm or framework_grad_norm"))),
    }
}

impl PyPendingStep {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let pending = shared.monitor.pending_step();
        let (step, pending) = (pending.step(), Mutex::new(Some(pending)));
        let asked = |kind| shared.monitor.request(kind).map_or(StatisticSet::EMPTY, |request| request.statistics);
        let statistics = Kind::ALL.map(asked);
        Self(Detached::new(PendingState { shared: Arc::clone(shared), step, statistics, pending }))
    }

    /// Records a reading. After the release, it counts as not measured.
    fn record(&self, label: Label, reading: impl Into<Reading>) {
        self.record_all(std::iter::once((label, reading.into())));
    }

    /// Records readings like [`record`](Self::record).
    fn record_all(&self, found: impl Iterator<Item = (Label, Reading)>) {
        let state = &self.0;
        let Some(pending) = &*self.0.pending.lock() else {
            let why = "it arrived after its step was released";
            return found.for_each(|(label, _)| self.refuse(label, why));
        };
        let mut latest = state.shared.meter.latest().map(|latest| latest.of_step(state.step));
        pending.record_all(found.map(|(label, reading)| {
            if let Some(latest) = &mut latest {
                latest.remember(label, state.statistics[label.kind as usize], reading);
            }
            label.with(reading)
        }));
    }

    fn refuse(&self, label: Label, why: &str) {
        self.0.shared.monitor.observe_unsupported(label.tensor, label.kind, why);
    }

    fn record_row(&self, (id, kind, micro_step, dtype, dims): &RowLabel, row: DeviceRow) -> f64 {
        let label = label(*id, *kind, *micro_step);
        match stats_of(dtype, dims, row) {
            Ok(stats) => self.record(label, stats),
            Err(why) => self.refuse(label, &why),
        }
        row.get(DeviceColumn::Norm)
    }
}

// _trainmon.pyi declares the signatures and documents each method.
#[pymethods]
#[expect(clippy::needless_pass_by_value, reason = "Python passes owned values")]
impl PyPendingStep {
    #[getter]
    fn step(&self) -> u64 {
        self.0.step.0
    }

    fn record_rows(&self, labels: Vec<RowLabel>, places: Vec<(Bound<'_, PyAny>, usize)>) -> PyResult<Vec<f64>> {
        if labels.len() != places.len() {
            let message =
                format!("expected one place per label, found labels: {}, places: {}", labels.len(), places.len());
            return Err(PyValueError::new_err(message));
        }
        let mut rows = Vec::with_capacity(places.len());
        for of_table in places.chunk_by(|one, next| one.0.is(&next.0)) {
            let table = Table::of(&of_table[0].0)?;
            for (_, row) in of_table {
                rows.extend(table.rows(*row, 1)?);
            }
        }
        let record_all = || labels.iter().zip(rows).map(|(label, row)| self.record_row(label, row)).collect();
        Ok(self.0.shared.monitor.guard("record_rows", record_all).unwrap_or_default())
    }

    fn record_block(&self, block: &PyDeviceBlock, table: &Bound<'_, PyAny>, first: usize) -> PyResult<f64> {
        let entries = block.entries();
        if entries.is_empty() {
            return Ok(0.0);
        }
        let rows = Table::of(table)?.rows(first, entries.len())?;
        let record_all = || {
            let there = entries.iter().zip(rows).filter(|(entry, _)| !entry.is_retracted);
            let mut squares = 0.0;
            self.record_all(there.map(|(entry, row)| {
                let norm = if entry.counts { row.get(DeviceColumn::Norm) } else { 0.0 };
                squares += norm * norm;
                (entry.label, row.stats(entry.dtype, entry.shape).into())
            }));
            f64::sqrt(squares)
        };
        Ok(self.0.shared.monitor.guard("record_block", record_all).unwrap_or(f64::NAN))
    }

    fn record_together(&self, label: (u32, KindNumber, u32), parts: Vec<Part>) {
        let label = self::label(label.0, label.1, label.2);
        let record = || {
            let stats = |(dtype, dims, row): &Part| stats_of(dtype, dims, DeviceRow(*row));
            let found: Result<Vec<_>, String> = parts.iter().map(stats).collect();
            match found {
                Ok(found) => {
                    let shapes: Vec<Shape> = found.iter().map(|stats| stats.shape).collect();
                    self.record(label, TensorStats::of_several(&found, stacked_shape(&shapes)));
                }
                Err(why) => self.refuse(label, &why),
            }
        };
        self.0.shared.monitor.guard("record_together", record);
    }

    fn record_values(&self, tensor_id: u32, kind: KindNumber, micro_step: u32, values: Vec<f64>) -> PyResult<()> {
        let label = label(tensor_id, kind, micro_step);
        let reading = reading_of(label.kind, &values)?;
        self.0.shared.monitor.guard("record_late_values", || self.record(label, reading));
        Ok(())
    }

    fn expect(&self, number: &str) -> PyResult<()> {
        let number = late_number(number)?;
        if let Some(pending) = &*self.0.pending.lock() {
            pending.expect(number);
        }
        Ok(())
    }

    fn forgo(&self, number: &str) -> PyResult<()> {
        let number = late_number(number)?;
        if let Some(pending) = &*self.0.pending.lock() {
            pending.forgo(number);
        }
        Ok(())
    }

    fn set_loss(&self, loss: f64) -> bool {
        self.0.pending.lock().as_ref().is_some_and(|pending| pending.set_loss(loss))
    }

    fn set_grad_norm(&self, norm: f64) -> bool {
        self.0.pending.lock().as_ref().is_some_and(|pending| pending.set_grad_norm(norm))
    }

    fn set_framework_grad_norm(&self, norm: f64) -> bool {
        self.0.pending.lock().as_ref().is_some_and(|pending| pending.set_framework_grad_norm(norm))
    }

    fn release(&self) {
        let pending = self.0.pending.lock().take();
        // Dropped outside the lock: this sends the batch, and may call a listener.
        drop(pending);
    }
}
