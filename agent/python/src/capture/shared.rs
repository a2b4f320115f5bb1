//! The state of a capture for Python: the table of operators, the mode, and the step in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use trainmon_capture::{Session, SpareMemory};

use crate::capture::allocations::Allocations;
use crate::capture::devices::Devices;
use crate::capture::gradients::Gradients;
use crate::capture::kinds::Kinds;
use crate::capture::operators::Operators;
use crate::capture::pending_messages::PendingMessages;
use crate::capture::stacks::{RenderedStacks, Stacks};
use crate::capture::thread;
use crate::discard_error::discard;

/// The interval of progress messages at the end of a step.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The state shared by the Python objects of one capture.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) operators: Operators,
    kinds: Arc<Kinds>,
    stacks: Arc<RenderedStacks>,
    active: RwLock<Option<Arc<Active>>>,
    /// Whether calls are captured: between start and stop.
    is_on: AtomicBool,
    mode: Mutex<Option<Py<PyAny>>>,
    /// The object that measures on devices.
    device_numbers: Mutex<Option<Py<PyAny>>>,
    /// Called before a call is placed under a parent that was set: removes a parent that has ended.
    parent_check: Mutex<Option<Py<PyAny>>>,
    pub(crate) pending_messages: Arc<PendingMessages>,
    /// The memory of tensors that were written in earlier steps, for reuse.
    pub(crate) memory: SpareMemory,
}

/// A step that is being captured.
pub(crate) struct Active {
    pub(crate) session: Session,
    pub(crate) stacks: Stacks,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) gradients: Gradients,
    /// Handles of hooks on saved tensors, which may live longer than the step.
    pub(crate) hooks: Mutex<Vec<Py<PyAny>>>,
    /// Tensors that are measured on their devices.
    pub(crate) devices: Devices,
    /// The uninitialised memory.
    pub(crate) allocations: Allocations,
    /// Whether `construct.json` contains every call.
    pub(crate) has_construct: bool,
}

impl Shared {
    /// Returns the step, if calls are captured now.
    pub(crate) fn active(&self) -> Option<Arc<Active>> {
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        // Not in a forked child: another thread of the parent may have held the locks.
        self.opened().filter(|active| active.session.is_on())
    }

    /// Returns the step that has begun and not ended, even if no calls are captured now.
    pub(crate) fn opened(&self) -> Option<Arc<Active>> {
        self.active.read().clone()
    }

    pub(crate) fn begin(&self, py: Python<'_>, session: Session) {
        let config = session.plan().config();
        let has_construct = config.extra_info && config.level.has_modules();
        let active = Active {
            session,
            stacks: Stacks::new(Arc::clone(&self.stacks)),
            kinds: Arc::clone(&self.kinds),
            gradients: Gradients::default(),
            hooks: Mutex::default(),
            devices: Devices::of(
                self.device_numbers.lock().as_ref().map(|device_numbers| device_numbers.clone_ref(py)),
            ),
            allocations: Allocations::new(),
            has_construct,
        };
        *self.active.write() = Some(Arc::new(active));
    }

    /// Removes the step, whose end writes its files.
    pub(crate) fn end(&self, py: Python<'_>) -> Option<Arc<Active>> {
        self.switch(false);
        let active = self.active.write().take()?;
        for hook in std::mem::take(&mut *active.hooks.lock()) {
            if let Err(error) = hook.call_method0(py, intern!(py, "remove")) {
                discard(py, error);
            }
        }
        Some(active)
    }

    /// Waits for the tensors' files and reports the progress meanwhile.
    pub(crate) fn await_files(&self, py: Python<'_>, active: &Active) {
        while !py.detach(|| active.session.wait_for_files(TELL_EVERY)) {
            self.pending_messages.tell(py);
        }
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

    pub(crate) fn set_device_numbers(&self, device_numbers: Option<Py<PyAny>>) {
        let before = std::mem::replace(&mut *self.device_numbers.lock(), device_numbers);
        drop(before);
    }

    /// Sets the function that is called before a call is placed under a parent, and discards the parents set so far.
    pub(crate) fn set_parent_check(&self, check: Option<Py<PyAny>>) {
        thread::forget_parents();
        let before = std::mem::replace(&mut *self.parent_check.lock(), check);
        drop(before);
    }

    /// Removes a parent that has ended, if one is set.
    pub(crate) fn check_parent(&self, py: Python<'_>) {
        if !thread::with_parent(|parent| parent.is_some()) {
            return;
        }
        let Some(check) = self.parent_check.lock().as_ref().map(|check| check.clone_ref(py)) else { return };
        if let Err(error) = check.call0(py) {
            discard(py, error);
        }
    }

    /// Logs an error of trainmon in the step's log.
    pub(crate) fn note(&self, what: &str, message: &str) {
        if let Some(active) = self.opened() {
            active.session.note_error(what, message, &[]);
        }
    }

    /// Reactivates the mode inside a function for which torch has deactivated it.
    pub(crate) fn mode_again<'py>(&self, py: Python<'py>) -> Option<ModeAgain<'py>> {
        static PUSH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let mode = self.mode.lock().as_ref().map(|mode| mode.clone_ref(py))?;
        PUSH.import(py, "torch._C", "_push_on_torch_function_stack").ok()?.call1((&mode,)).ok()?;
        Some(ModeAgain(mode.into_bound(py)))
    }
}

/// Guard that keeps the mode on torch's stack.
pub(crate) struct ModeAgain<'py>(Bound<'py, PyAny>);

impl ModeAgain<'_> {
    fn take_off(&self) -> PyResult<()> {
        static LENGTH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static AT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static POP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = self.0.py();
        let length: usize = LENGTH.import(py, "torch._C", "_len_torch_function_stack")?.call0()?.extract()?;
        let Some(top) = length.checked_sub(1) else { return Ok(()) };
        if AT.import(py, "torch._C", "_get_function_stack_at")?.call1((top,))?.is(&self.0) {
            POP.import(py, "torch._C", "_pop_torch_function_stack")?.call0()?;
        }
        Ok(())
    }
}

impl Drop for ModeAgain<'_> {
    fn drop(&mut self) {
        let py = self.0.py();
        // The top may be a mode of the host: a capture that was stopped meanwhile has removed its own.
        if let Err(error) = self.take_off() {
            discard(py, error);
        }
    }
}

/// Guard under which reading a tensor's attributes calls no `__torch_function__`, not even that of the capture's mode.
pub(crate) struct Quiet<'py>(Option<Bound<'py, PyAny>>);

impl<'py> Quiet<'py> {
    pub(crate) fn new(py: Python<'py>) -> PyResult<Self> {
        static DISABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let guard = DISABLE.import(py, "torch._C", "DisableTorchFunction")?.call0()?;
        guard.call_method0(intern!(py, "__enter__"))?;
        Ok(Self(Some(guard)))
    }

    /// Enters the guard only if a mode is on (one of the host, or the capture's own outside its call) or a tensor has a
    /// class of the host.
    pub(crate) fn unless_plain(py: Python<'py>, is_plain: bool) -> PyResult<Self> {
        static IS_ON: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        if !is_plain {
            return Self::new(py);
        }
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
