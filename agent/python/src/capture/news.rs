//! What the user should know, until Python can be told.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use trainmon_capture::{Listener, Notice};

use crate::swallow::swallow;

/// Notices that wait. A writer of files never waits for the interpreter: the thread that has it may be waiting for the writer.
#[derive(Default)]
pub(crate) struct News {
    notices: Mutex<Vec<Notice>>,
    listener: Mutex<Option<Py<PyAny>>>,
}

impl News {
    /// Keeps notices for a function `(message, hint)`.
    pub(crate) fn listener(self: &Arc<Self>, function: Py<PyAny>) -> Listener {
        let before = self.listener.lock().replace(function);
        drop(before);
        let news = Arc::clone(self);
        Arc::new(move |notice: &Notice| news.notices.lock().push(notice.clone()))
    }

    /// Tells what waits.
    pub(crate) fn tell(&self, py: Python<'_>) {
        let notices = std::mem::take(&mut *self.notices.lock());
        if notices.is_empty() {
            return;
        }
        let Some(listener) = self.listener.lock().as_ref().map(|listener| listener.clone_ref(py)) else { return };
        for notice in notices {
            if let Err(error) = listener.call1(py, (notice.message, notice.hint)) {
                swallow(py, error);
            }
        }
    }
}
