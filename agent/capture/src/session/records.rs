//! The record file that all threads of a capture share, and the end of the capture.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use trainmon_capture_files::{Frames, Hole, Recorder, data_name_member};
use trainmon_core::with_causes;
use trainmon_service::Notices;
use trainmon_tensor_files::write::WriteError;

use super::progress::ProgressLines;
use crate::file_writer::WrittenFile;

/// The part of a session that the file writers share.
pub(super) struct Records {
    pub(super) recorder: Mutex<Recorder>,
    /// Whether new calls are ignored. A call whose capture has begun is still written completely.
    pub(super) is_stopped: AtomicBool,
    /// Whether nothing is written any more.
    pub(super) is_closed: AtomicBool,
    pub(super) why_stopped: Mutex<Option<String>>,
    pub(super) notices: Notices,
    pub(super) progress: ProgressLines,
    pub(super) entries: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) files: AtomicU64,
    pub(super) shared_bytes: AtomicU64,
    pub(super) overflows: AtomicU64,
    /// The maximum number of bytes.
    pub(super) budget: u64,
}

impl Records {
    /// Appends to the record file. Returns `false` on an error, which also ends the capture.
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

    /// Frees the unused space of the record file, which the documents may need, and returns the file's length.
    pub(super) fn trim(&self) -> u64 {
        let mut recorder = self.recorder.lock();
        // If that fails, the space stays as zeros, which readers do not take for a record.
        let _given_back = recorder.trim().is_ok();
        recorder.length()
    }

    pub(super) fn file_done(&self, hole: Hole, written: Result<(&str, WrittenFile), WriteError>) {
        match written {
            Ok((name, WrittenFile { size: bytes, shared })) => {
                self.shared_bytes.fetch_add(shared, Ordering::Relaxed);
                let mut frames = Frames::new();
                frames.fills([(hole, &*data_name_member(name))].into_iter());
                // Also after a stop, because the file exists.
                if self.recorder.lock().append(&frames).is_ok() {
                    let count = self.files.fetch_add(1, Ordering::Relaxed) + 1;
                    if let Some(line) = self.progress.written(Instant::now(), count, bytes) {
                        self.notices.info(line);
                    }
                }
                self.spend(bytes + frames.as_bytes().len() as u64);
            }
            Err(error) => self.fail(
                format!("cannot write a tensor file: {}", with_causes(&error)),
                "check that the disk has free space; the files captured so far are kept",
            ),
        }
    }

    fn spend(&self, bytes: u64) {
        let spent = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A call whose capture has begun is completed, whatever its size.
        if spent > self.budget && !self.is_stopped.load(Ordering::Relaxed) {
            self.stop(
                format!("its files reached {} MiB (`disk_budget_mib`)", spent >> 20),
                "capture fewer steps or names, or raise `disk_budget_mib`",
            );
        }
    }

    /// Ends all writing after a failure.
    pub(super) fn fail(&self, why: String, hint: &str) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.stop(why, hint);
    }

    /// Ends the capture of the step and keeps its files. Reports only the first reason, which may be a failure to write the
    /// last files after the end of the step.
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
