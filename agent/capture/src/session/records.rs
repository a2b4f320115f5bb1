//! The record file as all threads of a capture have it, and the end it comes to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use trainmon_capture_files::{Frames, Hole, Recorder, data_name_member};
use trainmon_core::with_causes;
use trainmon_service::Notices;
use trainmon_tensor_files::write::WriteError;

use super::progress::ProgressLines;
use crate::file_writer::WrittenFile;

/// What the writers of files need of a session, too.
pub(super) struct Records {
    pub(super) recorder: Mutex<Recorder>,
    /// No call begins to be captured any more. One that has begun is written as a whole.
    pub(super) is_stopped: AtomicBool,
    /// Nothing is written any more.
    pub(super) is_closed: AtomicBool,
    pub(super) why_stopped: Mutex<Option<String>>,
    pub(super) notices: Notices,
    pub(super) progress: ProgressLines,
    pub(super) entries: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) files: AtomicU64,
    pub(super) shared_bytes: AtomicU64,
    pub(super) overflows: AtomicU64,
    /// Bytes allowed.
    pub(super) budget: u64,
}

impl Records {
    /// Appends to it. `false`: nothing can be written any more.
    pub(super) fn append(&self, frames: &Frames) -> bool {
        let mut recorder = self.recorder.lock();
        match recorder.append(frames) {
            Ok(()) => {
                drop(recorder);
                self.spend(frames.as_bytes().len() as u64);
                true
            }
            Err(error) => {
                drop(recorder);
                self.fail(with_causes(&error), error.hint());
                false
            }
        }
    }

    /// Gives back the room that the record file has and does not need: the documents may need it. Gives the file's length.
    pub(super) fn trim(&self) -> u64 {
        let mut recorder = self.recorder.lock();
        // What cannot be given back stays: it is zeros, which no reader takes for a record.
        let _given_back = recorder.trim().is_ok();
        recorder.length()
    }

    pub(super) fn file_done(&self, hole: Hole, written: Result<(&str, WrittenFile), WriteError>) {
        match written {
            Ok((name, WrittenFile { size: bytes, shared })) => {
                self.shared_bytes.fetch_add(shared, Ordering::Relaxed);
                let mut frames = Frames::new();
                frames.fills([(hole, &*data_name_member(name))].into_iter());
                // Also after a stop: the file is there.
                if self.recorder.lock().append(&frames).is_ok() {
                    let count = self.files.fetch_add(1, Ordering::Relaxed) + 1;
                    if let Some(line) = self.progress.written(Instant::now(), count, bytes) {
                        self.notices.info(line);
                    }
                }
                self.spend(bytes + frames.as_bytes().len() as u64);
            }
            Err(error) => self.fail(
                format!("a tensor could not be written: {}", with_causes(&error)),
                "check that the disk has room; what was captured before is kept",
            ),
        }
    }

    fn spend(&self, bytes: u64) {
        let spent = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // What has begun to be captured becomes whole, however much it is.
        if spent > self.budget && !self.is_stopped.load(Ordering::Relaxed) {
            self.stop(
                format!("{} MiB are written (`disk_budget_mib`)", spent >> 20),
                "capture fewer steps or names, or allow more",
            );
        }
    }

    /// Writes no more: something failed.
    pub(super) fn fail(&self, why: String, hint: &str) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.stop(why, hint);
    }

    /// Ends the capture of the step, and says so once: also of what fails while its last files are written. What is there
    /// stays.
    pub(super) fn stop(&self, why: String, hint: &str) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let message = format!("the capture of this step stops: {why}");
        {
            let mut known = self.why_stopped.lock();
            if known.is_some() {
                return;
            }
            *known = Some(why);
        }
        self.notices.warn(message, Some(hint.to_owned()));
    }
}
