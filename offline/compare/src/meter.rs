//! The progress of a comparison, which runs on all cores: counts bytes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use trainmon_capture_files::RankFiles;
use trainmon_report::Progress;

/// Bytes of captures: a JSON file counts when it is read and again when its values have been compared, a tensor when it is
/// read.
#[derive(Debug, Default)]
pub struct Meter {
    done: AtomicU64,
    total: AtomicU64,
    tensors: AtomicU64,
    notes: Mutex<BTreeSet<String>>,
}

impl Meter {
    /// Notes about files that were read: those that ask their reader to call code.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub(super) fn note(&self, note: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(note);
    }

    /// The progress so far.
    pub fn progress(&self) -> Progress {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        // Tensor files add only their own bytes, when they are read.
        Progress { done: done.min(total), total }
    }

    /// The number of tensor files read.
    pub fn tensors_read(&self) -> u64 {
        self.tensors.load(Ordering::Relaxed)
    }

    /// Counts a tensor file of this size.
    pub(super) fn add_tensor(&self, bytes: u64) {
        self.tensors.fetch_add(1, Ordering::Relaxed);
        self.add(bytes);
    }

    pub(super) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds files to the total.
    pub(super) fn expect<'f>(&self, files: impl Iterator<Item = &'f RankFiles>) {
        let bytes: u64 = files.map(|files| 2 * json_bytes(files) + files.tensors.as_deref().map_or(0, inside)).sum();
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts files whose values have been compared.
    pub(super) fn compared<'f>(&self, files: impl Iterator<Item = &'f RankFiles>) {
        self.add(files.map(json_bytes).sum());
    }
}

/// The bytes of a capture's JSON files.
pub(super) fn json_bytes(files: &RankFiles) -> u64 {
    [Some(&files.document), files.stack.as_ref(), files.construct.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| size(path))
        .sum()
}

/// The bytes of a directory's files.
fn inside(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// The size of a file; 0 if it cannot be read.
fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}
