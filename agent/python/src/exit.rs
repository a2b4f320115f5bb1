//! Handles the end of the interpreter: delivers queued data, and lets no thread wait for an interpreter that has ended.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::interruptible::interruptibly;
use crate::shared::Shared;
use crate::termination::deliver_before_sigterm;

/// Whether the interpreter is about to end; trainmon's threads may not call into it from then on.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// The number of threads that wait for or hold the interpreter to call a listener.
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Whether SIGTERM is about to end the process.
static TERMINATING: AtomicBool = AtomicBool::new(false);
/// The monitors to shut down at the end.
static LIVE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// Whether `at_exit` is registered in Python.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// The time after which a listener is abandoned at the interpreter's end.
const LAST_CALL: Duration = Duration::from_secs(2);

/// Registers a monitor that must deliver its data before the interpreter ends.
pub(crate) fn shut_down_at_exit(py: Python<'_>, monitor: Weak<Shared>) -> PyResult<()> {
    if !REGISTERED.swap(true, Ordering::SeqCst) {
        let at_exit = wrap_pyfunction!(at_exit, py)?;
        py.import("atexit")?.call_method1("register", (at_exit,))?;
    }
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.retain(|monitor| monitor.strong_count() > 0);
    live.push(monitor);
    drop(live);
    deliver_before_sigterm(deliver_at_sigterm);
    Ok(())
}

/// Shuts down the monitors within their deadlines, including those that another thread is shutting down.
fn deliver() {
    // The list is cloned, not taken: a SIGTERM during the interpreter's end must wait for the same monitors.
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for shared in live.iter().filter_map(Weak::upgrade) {
        let patience = Duration::from_millis(shared.monitor.config().pipeline.shutdown_timeout_ms);
        let deadline = Instant::now() + patience;
        shared.monitor.shutdown();
        while !shared.monitor.is_shut_down() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Shuts down the monitors after SIGTERM, on a separate thread: the training threads may hang.
fn deliver_at_sigterm() {
    TERMINATING.store(true, Ordering::SeqCst);
    deliver();
}

/// Whether SIGTERM is about to end the process; a wait for the interpreter may then last forever.
pub(crate) fn is_terminating() -> bool {
    TERMINATING.load(Ordering::SeqCst)
}

/// Called by Python before modules are torn down and threads are stopped.
#[pyfunction]
fn at_exit(py: Python<'_>) -> PyResult<()> {
    let (_delivered, raised) = interruptibly(py, deliver);
    py.detach(|| {
        CLOSED.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + LAST_CALL;
        while CALLS.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    raised.map_or(Ok(()), Err)
}

/// Calls into Python from any thread; `None` once the interpreter is about to end.
pub(crate) fn with_python<R>(call: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    // Counted before the flag is read: either `at_exit` sees the count, or this thread sees the flag.
    let _call = Call::enter();
    if CLOSED.load(Ordering::SeqCst) {
        return None;
    }
    Python::try_attach(call)
}

struct Call;

impl Call {
    fn enter() -> Self {
        CALLS.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A value whose drop may wait for the monitor's threads. The interpreter is released during the drop, because those
/// threads may have to call a listener.
pub(crate) struct Detached<T: Send>(ManuallyDrop<T>);

impl<T: Send> Detached<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send> Drop for Detached<T> {
    #[expect(unsafe_code, reason = "the value moves out of a drop")]
    fn drop(&mut self) {
        // SAFETY: taken only here; the field is not used afterwards.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        let mut value = Some(value);
        // If the interpreter is about to end, no thread waits for it, so it need not be released.
        if !CLOSED.load(Ordering::SeqCst) {
            Python::try_attach(|py| py.detach(|| drop(value.take())));
        }
    }
}
