//! Captures that were cut short: their documents made of the record files they left.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_dump::capture::{WriteError, left_over_records, recover};
use trainmon_report::{Advise, as_json as failure};

/// Why no capture can be recovered.
#[derive(Debug, thiserror::Error)]
pub enum CaptureRecoverError {
    /// The directory cannot be looked through.
    #[error(transparent)]
    Capture(#[from] WriteError),
    /// There is no record file.
    #[error("`{}` has no record file of a capture", path.display())]
    Nothing {
        /// Where it was looked for.
        path: PathBuf,
    },
}

impl Advise for CaptureRecoverError {
    fn hint(&self) -> &str {
        match self {
            Self::Capture(error) => error.hint(),
            Self::Nothing { .. } => {
                "a capture that ended in order has none and needs no recovery; for a journal name the directory to make: -o DIR"
            }
        }
    }
}

/// What came out of record files.
#[derive(Debug, Serialize)]
pub struct CaptureRecovery {
    /// One per record file, by path.
    pub captures: Vec<RecoveredCapture>,
    /// Those whose documents could not be made; their record files are still there.
    #[serde(skip)]
    pub failures: Vec<CaptureRecoverError>,
}

/// What came out of one record file.
#[derive(Debug, Serialize)]
pub struct RecoveredCapture {
    /// The document made.
    pub document: PathBuf,
    /// Entries in it.
    pub entries: usize,
    /// Bytes of an entry that was being written.
    pub torn: u64,
}

/// Makes the documents of every record file below `path` (a root, step or rank directory), where it lies; the record files
/// go when the documents are there.
///
/// # Errors
/// There is none, or the directory cannot be read.
pub fn recover_captures(path: &Path) -> Result<CaptureRecovery, CaptureRecoverError> {
    let directories = left_over_records(path)?;
    if directories.is_empty() {
        return Err(CaptureRecoverError::Nothing { path: path.to_path_buf() });
    }
    let mut recovery = CaptureRecovery { captures: Vec::new(), failures: Vec::new() };
    for directory in directories {
        match recover(&directory) {
            Ok(made) => {
                let (document, entries, torn) = (made.document, made.entries, made.torn);
                recovery.captures.push(RecoveredCapture { document, entries, torn });
            }
            Err(error) => recovery.failures.push(error.into()),
        }
    }
    Ok(recovery)
}

impl CaptureRecovery {
    /// Whether every document was made. What was being written when a process died is lost, and no fault.
    pub fn is_whole(&self) -> bool {
        self.failures.is_empty()
    }

    /// For a terminal: a line per document.
    pub fn in_words(&self) -> String {
        let line = |capture: &RecoveredCapture| {
            let RecoveredCapture { document, entries, torn } = capture;
            let torn = if *torn == 0 { String::new() } else { format!("; {torn} bytes of one more were torn") };
            format!("{}: {entries} entr{}{torn}\n", document.display(), if *entries == 1 { "y" } else { "ies" })
        };
        self.captures.iter().map(line).collect()
    }
}

/// For programs, a failure too.
pub fn captures_as_json(result: &Result<CaptureRecovery, CaptureRecoverError>) -> Value {
    match result {
        Ok(recovery) => {
            let errors: Vec<_> = recovery.failures.iter().map(failure).collect();
            json!({"ok": recovery.is_whole(), "captures": recovery.captures, "errors": errors})
        }
        Err(error) => json!({"ok": false, "captures": [], "errors": [failure(error)]}),
    }
}
