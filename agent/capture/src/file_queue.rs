//! Tensor files that are to be written, and those that are being written.

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
    /// Bytes of jobs that wait or are being written.
    pub(crate) bytes: usize,
    /// What is being written.
    pub(crate) running: Vec<Content>,
    /// What waits or is being written of a copy.
    pub(crate) copies: Copies,
    /// Jobs whose bytes are being copied.
    pub(crate) reserved: usize,
    pub(crate) is_closed: bool,
    /// Temporary names given.
    names: u64,
}

impl Queue {
    /// Whether every file is written.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.running.is_empty() && self.reserved == 0
    }

    /// The next job, with a temporary name for its file. A tensor waits while one that may be the same is being written: it is
    /// held against its file.
    pub(crate) fn next(&mut self) -> Option<(Job, String)> {
        let place = self.jobs.iter().position(|job| !self.running.contains(&job.copy.content))?;
        let job = self.jobs.remove(place)?;
        let temporary = self.begin(job.copy.content)?;
        Some((job, temporary))
    }

    /// A temporary name for a file. `None` while one is being written that may be the same.
    pub(crate) fn begin(&mut self, content: Content) -> Option<String> {
        if self.running.contains(&content) {
            return None;
        }
        self.running.push(content);
        self.names += 1;
        Some(format!(".{}.tmp", self.names))
    }
}
