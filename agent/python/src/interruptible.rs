//! Waits that Ctrl-C shortens. Python runs signal handlers only between its own instructions, so native code must check.

use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use pyo3::prelude::*;
use trainmon_agent::{wait_as_usual, wait_at_most};

/// The interval between two checks for a signal.
const LOOK: Duration = Duration::from_millis(50);

/// The longest wait after the first Ctrl-C.
const SHORT: Duration = Duration::from_secs(1);
/// The time that the thread has to end after the second Ctrl-C, before it is abandoned.
const LAST: Duration = Duration::from_millis(500);

/// Runs `wait`, whose waits end as in `trainmon_service::wait_at_most`, without the interpreter. An exception of a signal
/// handler (usually `KeyboardInterrupt`) shortens it to 1 second, a second one ends it. Returns the result, `None` if the
/// wait did not end in time, and the first exception.
pub(crate) fn interruptibly<R: Send + 'static>(
    py: Python<'_>,
    wait: impl FnOnce() -> R + Clone + Send + 'static,
) -> (Option<R>, Option<PyErr>) {
    let (give, take) = bounded(1);
    let on_a_thread = wait.clone();
    let thread =
        std::thread::Builder::new().name("trainmon-close".to_owned()).spawn(move || drop(give.try_send(on_a_thread())));
    if thread.is_err() {
        return (Some(py.detach(wait)), None);
    }
    let (mut raised, mut end) = (None, None);
    let found = loop {
        match py.detach(|| take.recv_timeout(LOOK)) {
            Ok(found) => break Some(found),
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            break None;
        }
        if let Err(error) = py.check_signals() {
            if raised.is_none() {
                wait_at_most(SHORT);
                raised = Some(error);
            } else {
                wait_at_most(Duration::ZERO);
                end = Some(Instant::now() + LAST);
            }
        }
    };
    if raised.is_some() {
        wait_as_usual();
    }
    (found, raised)
}
