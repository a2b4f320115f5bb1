//! What lies beside a capture that was asked for: who asked, and what is known of the steps before. Written on a thread that
//! the training does not wait for.

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

/// What a monitor keeps for captures.
#[derive(Default)]
pub(crate) struct CaptureDesk {
    pub(crate) before: StepsBefore,
    /// Threads that write what lies beside a dump.
    writing: Mutex<Vec<Receiver<()>>>,
}

impl CaptureDesk {
    pub(crate) fn new(before: StepsBefore) -> Self {
        Self { before, writing: Mutex::default() }
    }

    /// Writes beside the training. Without a thread it is written here.
    pub(crate) fn write(&self, file: RequestFile) {
        let (alive, ended) = bounded::<()>(0);
        let file = Arc::new(file);
        let of_thread = Arc::clone(&file);
        let thread = std::thread::Builder::new().name("trainmon-request".to_owned()).spawn(move || {
            // Dropped when the thread ends, however it ends.
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

    /// Waits until all is written, until the deadline.
    pub(crate) fn finish(&self, deadline: Instant) {
        let writing = std::mem::take(&mut *self.writing.lock());
        for thread in writing {
            // Nothing is ever sent: it ends by dropping its side.
            let _ended = receive_by(&thread, deadline);
        }
    }
}
