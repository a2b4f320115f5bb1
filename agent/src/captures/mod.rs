//! The files beside a requested capture: the request, and the steps before the capture. A thread writes them, so the
//! training does not wait.

mod before;
mod replay_outcome;
mod request_file;

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, TryRecvError, bounded};
use parking_lot::Mutex;
use trainmon_service::{receive_by, step_back};

pub(crate) use self::before::{RecentSteps, StepsBefore};
pub use self::replay_outcome::ReplayOutcome;
pub(crate) use self::request_file::RequestFile;

/// The steps before a capture, and the threads that write the files beside dumps.
#[derive(Default)]
pub(crate) struct RequestFiles {
    pub(crate) before: StepsBefore,
    /// One receiver per thread that writes files. It disconnects when the thread ends.
    writing: Mutex<Vec<Receiver<()>>>,
}

impl RequestFiles {
    pub(crate) fn new(before: StepsBefore) -> Self {
        Self { before, writing: Mutex::default() }
    }

    /// Writes the files in a new thread, or in this one if no thread can be started.
    pub(crate) fn write(&self, file: RequestFile) {
        let (alive, ended) = bounded::<()>(0);
        let file = Arc::new(file);
        let of_thread = Arc::clone(&file);
        let thread = std::thread::Builder::new().name("trainmon-request".to_owned()).spawn(move || {
            // Dropped when the thread ends, even by a panic.
            let _alive = alive;
            step_back();
            of_thread.write();
        });
        if thread.is_err() {
            file.write();
            return;
        }
        let mut writing = self.writing.lock();
        writing.retain(|thread| thread.try_recv() == Err(TryRecvError::Empty));
        writing.push(ended);
    }

    /// Waits until all files are written, at most until `deadline`.
    pub(crate) fn finish(&self, deadline: Instant) {
        let writing = std::mem::take(&mut *self.writing.lock());
        for thread in writing {
            // The thread never sends. It drops its end when it has finished.
            let _ended = receive_by(&thread, deadline);
        }
    }
}
