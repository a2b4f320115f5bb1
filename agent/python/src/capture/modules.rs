//! Records calls of modules.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trainmon_capture::{CallName, Direction, Part};

use crate::capture::backward::write_gradients;
use crate::capture::placing::tell_modules_around;
use crate::capture::shared::{Active, Quiet, Shared};
use crate::capture::thread::{self, Busy};
use crate::capture::values::Walk;

/// A module's call, from its beginning to its end, and its gradients.
#[pyclass(frozen, module = "trainmon._trainmon")]
pub(crate) struct ModuleCall {
    shared: Arc<Shared>,
    active: Weak<Active>,
    name: CallName,
    is_kept: bool,
    is_backward_kept: AtomicBool,
}

impl Shared {
    /// Begins a module's call. Returns `None` if nothing is captured now.
    pub(crate) fn begin_module(
        self: &Arc<Self>,
        py: Python<'_>,
        module: &str,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Option<ModuleCall> {
        if Busy::is_on() {
            return None;
        }
        let active = self.active()?;
        let _busy = Busy::new();
        self.guarded(py, "module", || {
            let _quiet = Quiet::new(py)?;
            let session = &active.session;
            let name = session.begin_module_call(module);
            let is_kept = session.begin_module(&name.forward, Direction::Forward);
            thread::enter_module(&name.forward);
            if is_kept || !session.plan().wants_direction(Direction::Forward) {
                let mut entry = session.entry(&name.forward);
                self.tell_stack(py, &active, &mut entry);
                if is_kept && entry.wants(Part::InputArgs) {
                    Walk::new(&active, entry.part(Part::InputArgs)).list(args);
                }
                if is_kept && entry.wants(Part::InputKwargs) {
                    Walk::new(&active, entry.part(Part::InputKwargs)).keywords(kwargs);
                }
                entry.append();
            }
            Ok(ModuleCall {
                shared: Arc::clone(self),
                active: Arc::downgrade(&active),
                name,
                is_kept,
                is_backward_kept: AtomicBool::new(false),
            })
        })
    }

    /// Records the gradient of a module's parameter.
    pub(crate) fn record_parameter_gradient(
        &self,
        py: Python<'_>,
        module: &str,
        parameter: &str,
        gradient: &Bound<'_, PyAny>,
    ) {
        let Some(active) = self.active().filter(|_| !Busy::is_on()) else { return };
        let _busy = Busy::new();
        self.guarded(py, "parameters_grad", || {
            let _quiet = Quiet::new(py)?;
            let session = &active.session;
            if session.wants_gradients(module) {
                let mut entry = session.entry(&active.gradients.name(session, module, parameter));
                if !entry.wants(Part::Gradient(parameter)) {
                    return Ok(());
                }
                Walk::new(&active, entry.part(Part::Gradient(parameter))).value(gradient);
                entry.append();
            }
            Ok(())
        });
    }
}

#[pymethods]
impl ModuleCall {
    /// Records the module's own parameters and its output. `failed`: the call raised, and `output` is `None`.
    fn end(&self, py: Python<'_>, output: &Bound<'_, PyAny>, parameters: &Bound<'_, PyDict>, failed: bool) {
        // Even if the step has ended meanwhile, because the thread is no longer in the module.
        thread::leave_module(&self.name.forward);
        let Some(active) = self.active.upgrade() else { return };
        let _busy = Busy::new();
        self.shared.guarded(py, "module", || {
            let _quiet = Quiet::new(py)?;
            let session = &active.session;
            let is_on = self.shared.is_on();
            if is_on && (active.has_construct || self.is_kept) {
                let mut entry = session.entry(&self.name.forward);
                // Closed first, because its parent is the module around it.
                session.end_module(&self.name.forward);
                tell_modules_around(&active);
                if active.has_construct {
                    entry.inside_open_module();
                }
                if self.is_kept && !failed && entry.wants(Part::Output) {
                    Walk::new(&active, entry.part(Part::Output)).output(output);
                    Walk::new(&active, entry.part(Part::Parameters)).present(parameters);
                }
                // The entry follows those of the inner calls, even if the call raised.
                entry.move_to_end();
                if entry.append() {
                    session.save_difference(&self.name.forward, |entry| {
                        Walk::new(&active, entry.part(Part::Output)).output(output);
                    });
                }
            } else {
                session.end_module(&self.name.forward);
            }
            Ok(())
        });
    }

    /// Adds a note to the call's entry.
    fn note(&self, py: Python<'_>, text: &str) {
        let Some(active) = self.active.upgrade().filter(|_| self.is_kept) else { return };
        self.shared.guarded(py, "module", || {
            let mut entry = active.session.entry(&self.name.forward);
            entry.part(Part::Note).plain_text(text);
            entry.append();
            Ok(())
        });
    }

    /// Begins the module's backward pass: later calls of this thread belong to it.
    pub(crate) fn begin_backward(&self, py: Python<'_>) {
        let Some(active) = self.active.upgrade().filter(|_| self.shared.is_on()) else { return };
        self.shared.guarded(py, "module backward", || {
            let is_kept = active.session.begin_module(&self.name.backward, Direction::Backward);
            self.is_backward_kept.store(is_kept, Ordering::Relaxed);
            thread::enter_module(&self.name.backward);
            Ok(())
        });
    }

    /// Ends the module's backward pass, with the gradients of its inputs and outputs.
    pub(crate) fn end_backward(&self, py: Python<'_>, into: &Bound<'_, PyAny>, of: &Bound<'_, PyAny>) {
        let Some(active) = self.active.upgrade().filter(|_| self.shared.is_on()) else { return };
        let _busy = Busy::new();
        self.shared.guarded(py, "module backward", || {
            let _quiet = Quiet::new(py)?;
            let session = &active.session;
            session.end_module(&self.name.backward);
            thread::leave_module(&self.name.backward);
            tell_modules_around(&active);
            let is_kept = self.is_backward_kept.load(Ordering::Relaxed);
            if is_kept || active.has_construct {
                let mut entry = session.entry(&self.name.backward);
                if active.has_construct {
                    entry.inside_open_module();
                }
                // The position in the file is that of the end, although `construct.json` already contains the entry.
                entry.move_to_end();
                if is_kept {
                    write_gradients(&active, &mut entry, into, of);
                }
                if entry.append() {
                    session.save_difference(&self.name.backward, |entry| write_gradients(&active, entry, into, of));
                }
            }
            Ok(())
        });
    }
}

impl ModuleCall {
    /// Logs an error of trainmon.
    pub(crate) fn failed(&self, what: &str, error: &PyErr) {
        self.shared.note(what, &error.to_string());
    }
}
