//! Why a capture cannot be read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use jiter::{Jiter, JiterError};

/// Where in a text file something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 1 on.
    pub line: usize,
    /// From 1 on, in bytes.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}, column {}", self.line, self.column)
    }
}

/// A dump directory or one of its files is not what it should be.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum CaptureError {
    /// The system refuses.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// It is a pipe or a device.
    #[error("`{}` is no regular file", path.display())]
    NotAFile { path: PathBuf },
    /// Not JSON.
    #[error("`{}`, {place}: not JSON: {what}", path.display())]
    Syntax { path: PathBuf, place: Place, what: String },
    /// JSON, but of something else.
    #[error("`{}`: `{key}`: expected {expected}, found {found}", path.display())]
    Unexpected { path: PathBuf, key: String, expected: &'static str, found: String },
    /// The directory has none of the files and directories of a capture.
    #[error("`{}` is no capture: no dump.json, debug.json, step* or rank* in it", path.display())]
    NoCapture { path: PathBuf },
    /// Two directories claim to be the same rank or step, `rank 0` or `step 3` say.
    #[error("`{}` and `{}` are both {what}", first.display(), second.display())]
    Twice { what: String, first: PathBuf, second: PathBuf },
}

impl CaptureError {
    pub(super) fn of_json(error: &JiterError, json: &Jiter<'_>, path: &Path) -> Self {
        let position = error.get_position(json);
        let place = Place { line: position.line, column: position.column };
        Self::Syntax { path: path.to_path_buf(), place, what: error.error_type.to_string() }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "check the path and its permissions",
            Self::Syntax { .. } => {
                "was the capturing process killed while it wrote? The file is written anew at each stop(); dump again"
            }
            Self::Unexpected { .. } => "expected is a dump.json of msprobe or trainmon; was the file edited or cut?",
            Self::NotAFile { .. } | Self::NoCapture { .. } => {
                "name a dump.json, a rank directory, a step directory or the directory that holds the steps"
            }
            Self::Twice { .. } => "remove one of them, or name the one that is meant",
        }
    }
}
