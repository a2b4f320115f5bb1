//! The class `Hold`: readings that come after the end of their step.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use trainmon_agent::Hold;
use trainmon_agent::core::{Dtype, Kind, Reading, Scalar, Shape, StatisticSet, Step};

use crate::arguments::{KindNumber, Label};
use crate::exit::Detached;
use crate::shared::Shared;

/// What a device computes of each tensor, in the order of a row.
pub(crate) const COLUMNS: [&str; 8] = ["min", "max", "mean", "norm", "std", "nans", "infs", "zeros"];

/// Keeps one step's batch from leaving until `release`, or until the object goes.
#[pyclass(frozen, name = "Hold", module = "trainmon._trainmon")]
pub(crate) struct PyHold(Detached<Held>);

struct Held {
    shared: Arc<Shared>,
    step: Step,
    /// What is asked of each kind in this step: live control may change it before the readings come.
    statistics: [StatisticSet; Kind::ALL.len()],
    /// `None` once released.
    hold: Mutex<Option<Hold>>,
}

/// A row's tensor id, kind, micro step, dtype and shape.
type RowLabel = (u32, KindNumber, u32, String, Vec<i64>);

impl PyHold {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let hold = shared.monitor.hold();
        let (step, hold) = (hold.step(), Mutex::new(Some(hold)));
        let asked = |kind| shared.monitor.request(kind).map_or(StatisticSet::EMPTY, |request| request.statistics);
        let statistics = Kind::ALL.map(asked);
        Self(Detached::new(Held { shared: Arc::clone(shared), step, statistics, hold }))
    }

    fn hold(&self) -> MutexGuard<'_, Option<Hold>> {
        self.0.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a reading. What comes after the release is counted as not measured.
    fn record(&self, label: Label, reading: Reading) {
        let is_kept = match &*self.hold() {
            Some(hold) => {
                hold.record(label.with(reading));
                let statistics = self.0.statistics[label.kind as usize];
                self.0.shared.latest.remember(self.0.step, label, statistics, reading);
                true
            }
            None => false,
        };
        if !is_kept {
            self.refuse(label, "it was delivered after its step had been released");
        }
    }

    fn refuse(&self, label: Label, why: &str) {
        self.0.shared.monitor.observe_unsupported(label.tensor, label.kind, why);
    }

    fn record_row(&self, (id, kind, micro_step, dtype, dims): &RowLabel, row: &[f64]) -> f64 {
        let label = Label::new(*id, *kind, *micro_step);
        match (Dtype::from_torch_name(dtype), Shape::new(dims)) {
            (Some(dtype), Ok(shape)) => self.record(label, reading(dtype, shape, row)),
            (None, _) => self.refuse(label, &format!("elements of type `{dtype}` cannot be measured")),
            (_, Err(error)) => self.refuse(label, &error.to_string()),
        }
        row[3]
    }
}

// The signatures are Python's: see _trainmon.pyi, which also says what each method does.
#[pymethods]
#[expect(clippy::needless_pass_by_value, reason = "what Python hands over is owned")]
impl PyHold {
    #[getter]
    fn step(&self) -> u64 {
        self.0.step.0
    }

    fn record_rows(&self, labels: Vec<RowLabel>, address: usize, columns: usize) -> PyResult<Vec<f64>> {
        if columns < COLUMNS.len() {
            let expected = COLUMNS.len();
            return Err(PyValueError::new_err(format!("columns: expected at least {expected}, found {columns}")));
        }
        if labels.is_empty() {
            return Ok(Vec::new());
        }
        if address == 0 || !address.is_multiple_of(align_of::<f64>()) {
            return Err(PyValueError::new_err(format!("address {address:#x}: expected that of float64 memory")));
        }
        let Some(numbers) = labels.len().checked_mul(columns) else {
            return Err(PyValueError::new_err(format!("columns: {columns} times {} labels is too much", labels.len())));
        };
        // SAFETY: the caller passes the `data_ptr()` of a contiguous float64 tensor of one row per label, which it
        // keeps alive and unwritten during the call: `_trainmon.pyi` asks for it.
        #[expect(unsafe_code, reason = "float64 memory of a tensor")]
        let table = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<f64>(address), numbers) };
        let record_all =
            || labels.iter().zip(table.chunks_exact(columns)).map(|(l, row)| self.record_row(l, row)).collect();
        Ok(self.0.shared.monitor.guard("record_rows", record_all).unwrap_or_default())
    }

    fn record_values(&self, tensor_id: u32, kind: KindNumber, micro_step: u32, values: Vec<f64>) -> PyResult<()> {
        let label = Label::new(tensor_id, kind, micro_step);
        let reading = label.reading_of(&values)?;
        self.0.shared.monitor.guard("record_late_values", || self.record(label, reading));
        Ok(())
    }

    fn set_loss(&self, loss: f64) {
        if let Some(hold) = &*self.hold() {
            hold.set_loss(loss);
        }
    }

    fn set_grad_norm(&self, norm: f64) {
        if let Some(hold) = &*self.hold() {
            hold.set_grad_norm(norm);
        }
    }

    fn set_framework_grad_norm(&self, norm: f64) {
        if let Some(hold) = &*self.hold() {
            hold.set_framework_grad_norm(norm);
        }
    }

    fn release(&self) {
        let hold = self.hold().take();
        // Dropped with the lock free: the batch leaves now, and a listener may be called.
        drop(hold);
    }
}

/// The reading of a row of [`COLUMNS`].
fn reading(dtype: Dtype, shape: Shape, row: &[f64]) -> Reading {
    if shape.elements() == 0 {
        return Reading::empty(dtype, shape);
    }
    let [min, max, mean, norm, std, nans, infs, zeros] = std::array::from_fn(|column| row[column]);
    // A NaN passes through `max`'s comparison, as it must.
    let abs_max = if min.is_nan() || max.is_nan() { f64::NAN } else { min.abs().max(max.abs()) };
    Reading {
        min: scalar(dtype, min),
        max: scalar(dtype, max),
        mean,
        norm,
        abs_max,
        std,
        nans: nans as u64,
        infs: infs as u64,
        zeros: zeros as u64,
        count: shape.elements() as u64,
        ..Reading::empty(dtype, shape)
    }
}

/// An extreme in the dtype's own arithmetic.
fn scalar(dtype: Dtype, value: f64) -> Scalar {
    match dtype {
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => Scalar::Int(value as i64),
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => Scalar::UInt(value as u64),
        Dtype::Bool => Scalar::Bool(value != 0.0),
        _ => Scalar::Float(value),
    }
}
