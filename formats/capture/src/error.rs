//! Errors of reading a capture.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use jiter::{Jiter, JiterError};

/// A place in a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in bytes.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}, column {}", self.line, self.column)
    }
}

/// A capture's directory or one of its files is invalid.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum CaptureError {
    /// An I/O error.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The path is a pipe or a device.
    #[error("`{}` is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    /// The file is not JSON.
    #[error("`{}`, {place}: not JSON: {what}", path.display())]
    Syntax { path: PathBuf, place: Place, what: String },
    /// The file is JSON with other content.
    #[error("`{}`: `{key}`: expected {expected}, found {found}", path.display())]
    Unexpected { path: PathBuf, key: String, expected: &'static str, found: String },
    /// The directory has no files or directories of a capture.
    #[error("`{}` is not a capture: it contains no `dump.json`, `debug.json`, `step*` or `rank*`", path.display())]
    NoCapture { path: PathBuf },
    /// Two directories have the same rank or step number, such as `rank 0` or `step 3`.
    #[error("`{}` and `{}` are both {what}", first.display(), second.display())]
    Twice { what: String, first: PathBuf, second: PathBuf },
}

impl CaptureError {
    pub(super) fn of_json(error: &JiterError, json: &Jiter<'_>, path: &Path) -> Self {
        let position = error.get_position(json);
        let place = Place { line: position.line, column: position.column };
        Self::Syntax { path: path.to_path_buf(), place, what: error.error_type.to_string() }
    }

    /// How to fix the error.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "check the path and its permissions",
            Self::Syntax { .. } => "capture again: the process was probably killed while it wrote the file",
            Self::Unexpected { .. } => "pass an unedited, complete `dump.json` of msprobe or trainmon",
            Self::NotAFile { .. } | Self::NoCapture { .. } => {
                "pass a `dump.json`, a rank directory, a step directory or the directory that contains the steps"
            }
            Self::Twice { .. } => "remove one of them, or pass the one to use",
        }
    }
}
