//! Messages for the user, stored until Python can receive them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::prelude::*;
use trainmon_capture::{Notice, Notices};

use crate::capture::thread::Busy;
use crate::discard_error::discard;
use crate::listener::severity_name;

/// Pending notices. A thread that writes files never waits for the interpreter, whose holder may be waiting for that
/// thread.
#[derive(Default)]
pub(crate) struct PendingMessages {
    notices: Mutex<Vec<Notice>>,
    /// Whether there are notices; checked after every call.
    is_waiting: AtomicBool,
    listener: Mutex<Option<Py<PyAny>>>,
}

impl PendingMessages {
    /// Returns notices that are stored for a function `(severity, message, hint)`.
    pub(crate) fn notices(self: &Arc<Self>, function: Py<PyAny>) -> Notices {
        let before = self.listener.lock().replace(function);
        drop(before);
        let pending_messages = Arc::clone(self);
        Notices::new(move |notice| {
            pending_messages.notices.lock().push(notice.clone());
            pending_messages.is_waiting.store(true, Ordering::Relaxed);
        })
    }

    /// Delivers the pending notices.
    pub(crate) fn tell(&self, py: Python<'_>) {
        if !self.is_waiting.swap(false, Ordering::Relaxed) {
            return;
        }
        let notices = std::mem::take(&mut *self.notices.lock());
        let Some(listener) = self.listener.lock().as_ref().map(|listener| listener.clone_ref(py)) else { return };
        // Calls by the host's log handlers are not part of the training.
        let _busy = Busy::new();
        for notice in notices {
            let severity = severity_name(notice.severity);
            if let Err(error) = listener.call1(py, (severity, notice.message, notice.hint)) {
                discard(py, error);
            }
        }
    }
}
