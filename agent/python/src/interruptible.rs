//! Waits that Ctrl-C shortens. Python runs signal handlers between two of its own instructions, and there are none
//! here.

use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use pyo3::prelude::*;
use trainmon_agent::{wait_as_usual, wait_at_most};

/// The interval between two checks for a signal.
const LOOK: Duration = Duration::from_millis(50);

/// The remaining wait after the first Ctrl-C.
const SHORT: Duration = Duration::from_secs(1);
/// The time to end after the next one, before the thread is abandoned.
const LAST: Duration = Duration::from_millis(500);

/// Runs `wait`, whose waits end as in `trainmon_service::wait_at_most`, without the interpreter. An exception of a
/// signal handler meanwhile (usually `KeyboardInterrupt`) shortens it to a second, the next one ends it. Also returns
/// the first exception, and `None` for a wait that did not end in time.
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
