//! How far a comparison is: the work runs on all cores and counts bytes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use trainmon_capture_files::RankFiles;
use trainmon_report::Progress;

/// Bytes of captures: a JSON file counts when it is read and again when what it holds has been compared, a tensor when it is
/// read.
#[derive(Debug, Default)]
pub struct Meter {
    done: AtomicU64,
    total: AtomicU64,
    tensors: AtomicU64,
    notes: Mutex<BTreeSet<String>>,
}

impl Meter {
    /// What a person should know about files that were read: those that ask whoever loads them to call something.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub(super) fn note(&self, note: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(note);
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        // Of a tensor file its numbers alone are counted when they are read.
        Progress { done: done.min(total), total }
    }

    /// How many files of tensors were read.
    pub fn tensors_read(&self) -> u64 {
        self.tensors.load(Ordering::Relaxed)
    }

    /// A file of a tensor of so many bytes was read.
    pub(super) fn add_tensor(&self, bytes: u64) {
        self.tensors.fetch_add(1, Ordering::Relaxed);
        self.add(bytes);
    }

    pub(super) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// These files are going to be compared.
    pub(super) fn expect<'f>(&self, files: impl Iterator<Item = &'f RankFiles>) {
        let bytes: u64 = files.map(|files| 2 * json_bytes(files) + files.tensors.as_deref().map_or(0, inside)).sum();
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What these files hold has been compared.
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

/// What cannot be looked at counts for nothing.
fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}
