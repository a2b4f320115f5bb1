//! Late numbers of tensors that are measured on their devices.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use pyo3::prelude::*;
use trainmon_agent::core::{Dtype, Shape};
use trainmon_agent::front::DeviceRow;
use trainmon_capture::{Later, Session, Tensor};

/// The numbers of a row, in the order of `trainmon.device`.
pub(crate) type Row = [f64; 8];

/// The object that measures on devices, and the tensors that wait for it.
#[derive(Default)]
pub(crate) struct Devices {
    device_numbers: Mutex<Option<Py<PyAny>>>,
    awaited: Mutex<HashMap<u64, Awaited, FixedState>>,
}

/// A tensor whose numbers are pending.
struct Awaited {
    later: Later,
    dtype: Dtype,
    shape: Shape,
    is_scalar: bool,
}

impl Devices {
    /// Creates the state of a step. `device_numbers`: an object with a method `take_up(tensor)`.
    pub(crate) fn of(device_numbers: Option<Py<PyAny>>) -> Self {
        Self { device_numbers: Mutex::new(device_numbers), awaited: Mutex::default() }
    }

    pub(crate) fn device_numbers(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.device_numbers.lock().as_ref().map(|device_numbers| device_numbers.clone_ref(py))
    }

    /// Registers the ticket for a tensor's numbers. `count`: the number of elements.
    pub(crate) fn await_numbers(&self, ticket: u64, later: Later, tensor: &Tensor<'_>, count: i64) {
        let (Some(dtype), Ok(shape)) = (Dtype::from_torch_name(tensor.dtype), Shape::new(&[count])) else { return };
        let is_scalar = tensor.shape.is_empty() && count == 1;
        self.awaited.lock().insert(ticket, Awaited { later, dtype, shape, is_scalar });
    }

    /// Writes numbers that have arrived. Missing ones stay null.
    pub(crate) fn arrived(&self, session: &Session, tickets: &[u64], rows: &[Row]) {
        for (ticket, row) in tickets.iter().zip(rows) {
            let Some(awaited) = self.awaited.lock().remove(ticket) else { continue };
            let stats = DeviceRow(*row).stats(awaited.dtype, awaited.shape);
            session.fill_numbers(&awaited.later, &stats, awaited.is_scalar);
        }
    }
}
