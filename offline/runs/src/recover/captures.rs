//! Recovers captures that were cut short: creates their documents from the remaining record files.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_capture_files::{Made, Missing, WriteError, left_over_records, recover};
use trainmon_report::{Advise, as_json as failure, counted};

/// An error of recovering captures.
#[derive(Debug, thiserror::Error)]
pub enum CaptureRecoverError {
    /// The directory cannot be read.
    #[error(transparent)]
    Capture(#[from] WriteError),
    /// There is no record file.
    #[error("`{}` has no record file of a capture", path.display())]
    Nothing { path: PathBuf },
}

impl Advise for CaptureRecoverError {
    fn hint(&self) -> &str {
        match self {
            Self::Capture(error) => error.hint(),
            Self::Nothing { .. } => {
                "a capture that ended regularly has none and needs no recovery; for a journal, pass the output directory: `-o DIR`"
            }
        }
    }
}

/// The result of recovering captures.
#[derive(Debug, Serialize)]
pub struct CaptureRecovery {
    /// The recovered captures, one per record file, by path.
    pub captures: Vec<RecoveredCapture>,
    /// Errors of record files without a document; these files are kept.
    #[serde(skip)]
    pub failures: Vec<CaptureRecoverError>,
}

/// The result of one record file.
#[derive(Debug, Serialize)]
pub struct RecoveredCapture {
    /// The new document.
    pub document: PathBuf,
    /// The number of entries.
    pub entries: usize,
    /// The size in bytes of an incomplete entry at the end.
    pub torn: u64,
    /// The missing files and numbers of entries.
    pub missing: Vec<Missing>,
    /// Whether nothing is incomplete or missing.
    pub whole: bool,
}

/// The number of incomplete entries that are named.
const MOST_NAMED: usize = 3;

/// Creates the documents of all record files below `path` (a root, step or rank directory) in place, and removes the record
/// files afterwards.
///
/// # Errors
/// There is no record file, or the directory cannot be read.
pub fn recover_captures(path: &Path) -> Result<CaptureRecovery, CaptureRecoverError> {
    let directories = left_over_records(path)?;
    if directories.is_empty() {
        return Err(CaptureRecoverError::Nothing { path: path.to_path_buf() });
    }
    let mut recovery = CaptureRecovery { captures: Vec::new(), failures: Vec::new() };
    for directory in directories {
        match recover(&directory) {
            Ok(made) => {
                let Made { document, entries, torn, missing } = made;
                let whole = torn == 0 && missing.is_empty();
                recovery.captures.push(RecoveredCapture { document, entries, torn, missing, whole });
            }
            Err(error) => recovery.failures.push(error.into()),
        }
    }
    Ok(recovery)
}

impl CaptureRecovery {
    /// Whether every document was created, and no process died with data in a queue or being written.
    pub fn is_whole(&self) -> bool {
        self.failures.is_empty() && self.captures.iter().all(|capture| capture.whole)
    }

    /// The text for a terminal: a line per document.
    pub fn in_words(&self) -> String {
        let line = |capture: &RecoveredCapture| {
            let RecoveredCapture { document, entries, torn, missing, whole: _ } = capture;
            let torn = if *torn == 0 { String::new() } else { format!("; {torn} bytes of one more are incomplete") };
            let entries = counted(*entries as u64, "entry", "entries");
            format!("{}: {entries}{torn}{}\n", document.display(), in_words(missing))
        };
        self.captures.iter().map(line).collect()
    }
}

/// The missing files and numbers of entries, with the first entries by name.
fn in_words(missing: &[Missing]) -> String {
    let sum = |count: fn(&Missing) -> usize| missing.iter().map(count).sum::<usize>();
    let (tensors, numbers) = (sum(|one| one.tensors), sum(|one| one.numbers));
    let lacks = [(tensors, "tensor file", "tensor files"), (numbers, "number", "numbers")];
    let lacks: Vec<String> = lacks
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| counted(count as u64, one, many))
        .collect();
    if lacks.is_empty() {
        return String::new();
    }
    let named: Vec<&str> = missing.iter().take(MOST_NAMED).map(|one| &*one.entry).collect();
    let more = missing.len() - named.len();
    let more = if more > 0 { format!(" and {more} more (`--json` lists all)") } else { String::new() };
    let were = if tensors + numbers == 1 { "was" } else { "were" };
    format!("; {} {were} not written: {}{more}", lacks.join(" and "), named.join(", "))
}

/// The result, or the error, as JSON.
pub fn captures_as_json(result: &Result<CaptureRecovery, CaptureRecoverError>) -> Value {
    match result {
        Ok(recovery) => {
            let errors: Vec<_> = recovery.failures.iter().map(failure).collect();
            json!({"ok": recovery.failures.is_empty(), "whole": recovery.is_whole(), "captures": recovery.captures, "errors": errors})
        }
        Err(error) => json!({"ok": false, "captures": [], "errors": [failure(error)]}),
    }
}
