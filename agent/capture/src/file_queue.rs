//! The queue of tensor files, including those that are being written.

use std::collections::VecDeque;
use std::sync::Arc;

use trainmon_capture_files::Hole;

use crate::copies::{Copies, TensorCopy};
use crate::file_writer::Content;

/// One file to write.
pub(crate) struct Job {
    pub(crate) hole: Hole,
    pub(crate) name: String,
    pub(crate) copy: Arc<TensorCopy>,
}

#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) jobs: VecDeque<Job>,
    /// The bytes of jobs that are queued or being written.
    pub(crate) bytes: usize,
    /// The contents that are being written.
    pub(crate) running: Vec<Content>,
    /// The copies that are queued or being written.
    pub(crate) copies: Copies,
    /// The number of jobs whose bytes are being copied.
    pub(crate) reserved: usize,
    pub(crate) is_closed: bool,
    /// The number of temporary names used.
    names: u64,
}

impl Queue {
    /// Whether every file is written.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.running.is_empty() && self.reserved == 0
    }

    /// Returns the next job, with a temporary name for its file. Skips a tensor while one of equal [`Content`] is being
    /// written, because it is compared with that file later.
    pub(crate) fn next(&mut self) -> Option<(Job, String)> {
        let place = self.jobs.iter().position(|job| !self.running.contains(&job.copy.content))?;
        let job = self.jobs.remove(place)?;
        let temporary = self.begin(job.copy.content)?;
        Some((job, temporary))
    }

    /// Returns a temporary name for a file, or `None` while a file of equal [`Content`] is being written.
    pub(crate) fn begin(&mut self, content: Content) -> Option<String> {
        if self.running.contains(&content) {
            return None;
        }
        self.running.push(content);
        self.names += 1;
        Some(format!(".{}.tmp", self.names))
    }
}
