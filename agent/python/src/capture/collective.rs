//! Communication between ranks: calls whose results are complete only after they return.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use trainmon_capture::Part;

use crate::capture::call::{Arguments, Begun};
use crate::capture::shared::{Quiet, Shared};
use crate::capture::thread::{self, Busy};
use crate::capture::values::Walk;

/// A call that has begun. Inner calls are not captured until `returned` is called.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct OperatorCall {
    shared: Arc<Shared>,
    begun: Begun,
}

impl Shared {
    pub(crate) fn begin_operator(
        self: &Arc<Self>,
        py: Python<'_>,
        operator: usize,
        shown: &Arguments<'_, '_>,
    ) -> Option<OperatorCall> {
        let active = self.active().filter(|_| !Busy::is_on())?;
        let operator = self.operators.get(operator)?;
        let busy = Busy::new();
        let begun = self.guarded(py, "operator", || {
            let _quiet = Quiet::unless_plain(py, shown.is_plain)?;
            Ok(self.begin_call(py, &active, &operator, shown))
        })?;
        // `returned` releases it, in the same thread.
        std::mem::forget(busy);
        Some(OperatorCall { shared: Arc::clone(self), begun })
    }
}

#[pymethods]
impl OperatorCall {
    /// Registers that the function has returned or raised. Called once, in the thread that called the function.
    fn returned(&self) {
        thread::no_longer_busy();
        self.begun.active.session.end(&self.begun.name.forward);
    }

    /// Adds a note to the call's entry.
    fn note(&self, py: Python<'_>, text: &str) {
        let Begun { active, name, is_kept, .. } = &self.begun;
        if !is_kept {
            return;
        }
        self.shared.guarded(py, "operator", || {
            let mut entry = active.session.entry(&name.forward);
            entry.part(Part::Note).plain_text(text);
            entry.append();
            Ok(())
        });
    }

    /// Records the results; an argument at a position in `hidden` is omitted.
    #[expect(clippy::needless_pass_by_value, reason = "Python passes owned values")]
    fn end(&self, py: Python<'_>, outputs: &Bound<'_, PyTuple>, hidden: Vec<usize>) {
        let Begun { active, name, is_kept, .. } = &self.begun;
        if !is_kept {
            return;
        }
        let _busy = Busy::new();
        self.shared.guarded(py, "operator", || {
            let _quiet = Quiet::new(py)?;
            let mut entry = active.session.entry(&name.forward);
            if entry.wants(Part::Output) {
                let values = entry.part(Part::Output);
                Walk::new(active, values).list_without(outputs, |place| hidden.contains(&place));
                entry.append();
            }
            Ok(())
        });
    }
}
