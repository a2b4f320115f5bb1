//! The class `DeviceBlock`: the records of the rows of one launch.

use std::collections::HashSet;

use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use trainmon_agent::core::{Dtype, Shape};
use trainmon_agent::front::Label;

use crate::arguments::KindNumber;

/// The record of one row.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) label: Label,
    /// The tensor's dtype.
    pub(crate) dtype: Dtype,
    pub(crate) shape: Shape,
    /// Whether its norm counts in the global norm.
    pub(crate) counts: bool,
    /// Whether another row of its step has replaced it.
    pub(crate) is_retracted: bool,
}

/// Records of tensors measured in one launch, by row.
#[pyclass(frozen, name = "DeviceBlock", module = "trainmon._trainmon")]
pub(crate) struct PyDeviceBlock(Mutex<Vec<Entry>>);

impl PyDeviceBlock {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        Self(Mutex::new(entries))
    }

    pub(crate) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock()
    }
}

// _trainmon.pyi declares the signatures and documents each method.
#[pymethods]
#[expect(clippy::needless_pass_by_value, reason = "Python passes owned values")]
impl PyDeviceBlock {
    fn __len__(&self) -> usize {
        self.entries().len()
    }

    fn rows_of(&self, kinds: HashSet<u8>) -> Vec<usize> {
        let entries = self.entries();
        let is_meant = |entry: &Entry| kinds.contains(&(entry.label.kind as u8));
        (0..entries.len()).filter(|&row| is_meant(&entries[row])).collect()
    }

    fn retract(&self, kind: KindNumber, tensor_ids: HashSet<u32>) {
        let is_meant = |entry: &&mut Entry| entry.label.kind == kind.0 && tensor_ids.contains(&entry.label.tensor.0);
        self.entries().iter_mut().filter(is_meant).for_each(|entry| entry.is_retracted = true);
    }
}
