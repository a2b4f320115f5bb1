//! Values that a script saves by name, and their gradients.

use std::sync::{Arc, Weak};

use pyo3::intern;
use pyo3::prelude::*;
use trainmon_capture::{LaterValue, Part};

use crate::capture::shared::{Active, Quiet, Shared};
use crate::capture::thread::Busy;
use crate::capture::values::Walk;

/// The hook that a saved tensor calls when its gradient is computed.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct SavedGradient {
    shared: Arc<Shared>,
    active: Weak<Active>,
    place: LaterValue,
}

impl Shared {
    pub(crate) fn save(self: &Arc<Self>, py: Python<'_>, value: &Bound<'_, PyAny>, name: &str, with_gradients: bool) {
        let Some(active) = self.opened() else { return };
        let _busy = Busy::new();
        self.guarded(py, "save", || {
            let _quiet = Quiet::new(py)?;
            let session = &active.session;
            let names = session.begin_saved(name, with_gradients);
            let mut entry = session.entry(&names.forward);
            Walk::new(&active, entry.part(Part::Saved)).value(value);
            entry.append();
            let mut places = Vec::new();
            if with_gradients {
                let mut entry = session.entry(&names.backward);
                Walk::new(&active, entry.part(Part::Saved)).places(value, &mut |tensor, place| {
                    places.push((tensor.clone(), place));
                });
                entry.append();
            }
            for (tensor, place) in places {
                if tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
                    let hook = SavedGradient { shared: Arc::clone(self), active: Arc::downgrade(&active), place };
                    let handle = tensor.call_method1(intern!(py, "register_hook"), (Py::new(py, hook)?,))?;
                    active.hooks.lock().push(handle.unbind());
                }
            }
            Ok(())
        });
    }
}

#[pymethods]
impl SavedGradient {
    fn __call__(&self, py: Python<'_>, gradient: &Bound<'_, PyAny>) {
        let Some(active) = self.active.upgrade() else { return };
        let _busy = Busy::new();
        self.shared.guarded(py, "save", || {
            let _quiet = Quiet::new(py)?;
            active.session.fill_value(&self.place, |values| Walk::new(&active, values).value(gradient));
            Ok(())
        });
    }
}
