//! What a capture for Python holds: the table of operators, the mode, and the step that is being captured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use trainmon_capture::Session;

use crate::capture::gradients::Gradients;
use crate::capture::kinds::Kinds;
use crate::capture::news::News;
use crate::capture::operators::Operators;
use crate::capture::stacks::Stacks;

/// Shared by the Python objects of one capture.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) operators: Operators,
    kinds: Arc<Kinds>,
    active: RwLock<Option<Arc<Active>>>,
    /// Whether calls are captured: between start and stop.
    is_on: AtomicBool,
    mode: Mutex<Option<Py<PyAny>>>,
    pub(crate) news: Arc<News>,
}

/// A step that is being captured.
pub(crate) struct Active {
    pub(crate) session: Session,
    pub(crate) stacks: Stacks,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) gradients: Gradients,
    /// Whether every call has its place in `construct.json`.
    pub(crate) has_construct: bool,
}

impl Shared {
    /// The step, if calls are captured now.
    pub(crate) fn active(&self) -> Option<Arc<Active>> {
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        // Also not in a forked child, whose locks another thread of its parent may have held.
        self.opened().filter(|active| active.session.is_on())
    }

    /// The step that was begun and has not ended, whether calls are captured now or not.
    pub(crate) fn opened(&self) -> Option<Arc<Active>> {
        self.active.read().clone()
    }

    pub(crate) fn begin(&self, session: Session) {
        let config = session.plan().config();
        let has_construct = config.extra_info && config.level.has_modules();
        let active = Active {
            session,
            stacks: Stacks::default(),
            kinds: Arc::clone(&self.kinds),
            gradients: Gradients::default(),
            has_construct,
        };
        *self.active.write() = Some(Arc::new(active));
    }

    /// Takes the step out: its end writes its files.
    pub(crate) fn end(&self) -> Option<Arc<Active>> {
        self.switch(false);
        self.active.write().take()
    }

    pub(crate) fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn set_mode(&self, mode: Option<Py<PyAny>>) {
        let before = std::mem::replace(&mut *self.mode.lock(), mode);
        drop(before);
    }

    /// Notes an error of ours in the step's log.
    pub(crate) fn note(&self, what: &str, message: &str) {
        if let Some(active) = self.opened() {
            active.session.note_error(what, message, &[]);
        }
    }

    /// Puts the mode back for what torch has taken it off for.
    pub(crate) fn mode_again<'py>(&self, py: Python<'py>) -> Option<ModeAgain<'py>> {
        static PUSH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let mode = self.mode.lock().as_ref().map(|mode| mode.clone_ref(py))?;
        PUSH.import(py, "torch._C", "_push_on_torch_function_stack").ok()?.call1((mode,)).ok()?;
        Some(ModeAgain(py))
    }
}

/// The mode stands on torch's stack while this lives.
pub(crate) struct ModeAgain<'py>(Python<'py>);

impl Drop for ModeAgain<'_> {
    fn drop(&mut self) {
        static POP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let popped = POP.import(self.0, "torch._C", "_pop_torch_function_stack").and_then(PyAnyMethods::call0);
        // An empty stack: somebody else took it, and there is nothing to take.
        drop(popped);
    }
}

/// While it lives, reading a tensor's attributes calls nobody's `__torch_function__`, our mode's neither.
pub(crate) struct Quiet<'py>(Option<Bound<'py, PyAny>>);

impl<'py> Quiet<'py> {
    pub(crate) fn new(py: Python<'py>) -> PyResult<Self> {
        static DISABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let guard = DISABLE.import(py, "torch._C", "DisableTorchFunction")?.call0()?;
        guard.call_method0(intern!(py, "__enter__"))?;
        Ok(Self(Some(guard)))
    }

    /// Only where a mode is on: another one of the host's, or ours where it was not called itself.
    pub(crate) fn unless_plain(py: Python<'py>) -> PyResult<Self> {
        static IS_ON: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let is_on = IS_ON.import(py, "torch._C", "_is_torch_function_mode_enabled")?.call0()?.is_truthy()?;
        if is_on { Self::new(py) } else { Ok(Self(None)) }
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            let py = guard.py();
            let left = guard.call_method1(intern!(py, "__exit__"), (py.None(), py.None(), py.None()));
            drop(left);
        }
    }
}
