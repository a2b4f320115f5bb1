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
pub enum CaptureError {
    /// The system refuses.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// File or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a pipe or a device.
    #[error("`{}` is no regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Not JSON.
    #[error("`{}`, {place}: not JSON: {what}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where it stops making sense.
        place: Place,
        /// What the parser says.
        what: String,
    },
    /// JSON, but of something else.
    #[error("`{}`: `{key}`: expected {expected}, found {found}", path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// Which entry.
        key: String,
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The directory has none of the files and directories of a capture.
    #[error("`{}` is no capture: no dump.json, debug.json, step* or rank* in it", path.display())]
    NoCapture {
        /// The directory.
        path: PathBuf,
    },
    /// Two directories claim to be the same rank or step.
    #[error("`{}` and `{}` are both {what}", first.display(), second.display())]
    Twice {
        /// `rank 0`, `step 3`.
        what: String,
        /// One of them.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
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
