//! Uninitialised memory that was allocated during a captured step: its contents are meaningless.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::intern;
use pyo3::prelude::*;

use crate::discard_error::discard;

/// The storages from a step's calls of `torch.empty` and the like. Each has the step's number as an attribute: torch keeps
/// a storage's object as long as its memory, so nothing is stored here.
pub(crate) struct Allocations {
    number: u64,
    /// Whether there are any. Most steps have none, and then no cost.
    are_any: AtomicBool,
}

impl Allocations {
    /// Creates the allocations of a new step.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), are_any: AtomicBool::new(false) }
    }

    /// Registers the uninitialised memory of a call's result. A tensor without elements has none.
    ///
    /// # Errors
    /// The result is not a tensor with a storage.
    pub(crate) fn note(&self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = tensor.py();
        if tensor.call_method0(intern!(py, "numel"))?.extract::<i64>().is_ok_and(|elements| elements == 0) {
            return Ok(());
        }
        let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
        storage.setattr(intern!(py, "_trainmon_from_empty"), self.number)?;
        self.are_any.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a tensor is in such memory. Cost: 0.2 us if there is any.
    pub(crate) fn have_given(&self, tensor: &Bound<'_, PyAny>) -> bool {
        if !self.are_any.load(Ordering::Relaxed) {
            return false;
        }
        let py = tensor.py();
        let found = tensor.call_method0(intern!(py, "untyped_storage")).and_then(|storage| {
            let number = storage.getattr_opt(intern!(py, "_trainmon_from_empty"))?;
            number.map_or(Ok(false), |number| Ok(number.extract::<u64>()? == self.number))
        });
        found.map_err(|error| discard(py, error)).unwrap_or(false)
    }
}
