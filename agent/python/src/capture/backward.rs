//! Gradients, recorded at autograd's nodes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use trainmon_capture::{Direction, Entry, Part};

use crate::capture::placing::{place, tell_modules_around};
use crate::capture::shared::{Active, Quiet, Shared};
use crate::capture::thread::Busy;
use crate::capture::values::Walk;

/// Returns the node of the first tensor in a result; `None` if no gradient passes through it.
pub(crate) fn first_node<'py>(py: Python<'py>, result: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut first = result.clone();
    // An LSTM returns a tuple of tuples, for example.
    for _ in 0..4 {
        let inner = if let Ok(values) = first.cast::<PyTuple>() {
            values.iter().next()
        } else if let Ok(values) = first.cast::<PyList>() {
            values.iter().next()
        } else {
            break;
        };
        match inner {
            Some(inner) => first = inner,
            None => return Ok(None),
        }
    }
    let Some(node) = first.getattr_opt(intern!(py, "grad_fn"))? else { return Ok(None) };
    Ok((!node.is_none()).then_some(node))
}

/// The hook that a node calls when its gradients are complete. It lives as long as the graph, but does not keep an ended
/// step alive.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct GradientHook {
    shared: Arc<Shared>,
    active: Weak<Active>,
    name: String,
    is_entry: bool,
    /// The number of passes through the node so far.
    passes: AtomicU32,
}

impl GradientHook {
    pub(crate) fn new(
        py: Python<'_>,
        shared: Arc<Shared>,
        active: &Arc<Active>,
        name: &str,
        is_entry: bool,
    ) -> PyResult<Py<Self>> {
        let (active, name, passes) = (Arc::downgrade(active), name.to_owned(), AtomicU32::new(0));
        Py::new(py, Self { shared, active, name, is_entry, passes })
    }
}

#[pymethods]
impl GradientHook {
    /// `into`: the gradients of the node's inputs; `of`: those of its outputs.
    fn __call__(&self, py: Python<'_>, into: &Bound<'_, PyAny>, of: &Bound<'_, PyAny>) {
        let Some(active) = self.active.upgrade().filter(|_| !Busy::is_on()) else { return };
        let _busy = Busy::new();
        self.shared.guarded(py, "backward", || {
            let _quiet = Quiet::new(py)?;
            // A graph may be traversed again, as for a gradient's own gradient: each pass has an entry.
            let again = match self.passes.fetch_add(1, Ordering::Relaxed) {
                0 => None,
                pass => Some(format!("{}.{pass}", self.name)),
            };
            record_backward(&active, again.as_deref().unwrap_or(&self.name), self.is_entry, into, of);
            Ok(())
        });
    }
}

fn record_backward(active: &Active, name: &str, is_entry: bool, into: &Bound<'_, PyAny>, of: &Bound<'_, PyAny>) {
    let session = &active.session;
    let is_kept = session.begin(name, Direction::Backward) && is_entry;
    if is_kept || active.has_construct {
        let mut entry = session.entry(name);
        place(active, &mut entry);
        if is_kept {
            write_gradients(active, &mut entry, into, of);
        }
        if entry.append() {
            session.save_difference(name, |entry| write_gradients(active, entry, into, of));
        }
        tell_modules_around(active);
    }
    session.end(name);
}

pub(crate) fn write_gradients(active: &Active, entry: &mut Entry<'_>, into: &Bound<'_, PyAny>, of: &Bound<'_, PyAny>) {
    if entry.wants(Part::Input) {
        Walk::new(active, entry.part(Part::Input)).output(of);
    }
    if entry.wants(Part::Output) {
        Walk::new(active, entry.part(Part::Output)).output(into);
    }
}
