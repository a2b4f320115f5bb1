//! Errors of reading and writing a run's files.

use std::io;
use std::path::PathBuf;

const DAMAGED: &str = "the file was damaged or edited: restore it, or move it out of the directory";

/// A file of a run cannot be written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum WriteError {
    /// The file cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The directory cannot be created.
    #[error("cannot create directory `{}`", path.display())]
    CreateDirectory { path: PathBuf, source: io::Error },
}

/// A problem with a run directory or a table in it. A table's header is line 1.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum RunError {
    /// The directory cannot be read.
    #[error("cannot read directory `{}`", path.display())]
    ReadDirectory { path: PathBuf, source: io::Error },
    /// The directory has no tables of a monitor.
    #[error("`{}` is not a run directory: {found}", path.display())]
    NotARun { path: PathBuf, found: &'static str },
    /// A file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A row is not CSV or not UTF-8.
    #[error("`{}` line {line}: not a CSV row", path.display())]
    Malformed { path: PathBuf, line: u64, source: csv::Error },
    /// A column that every table has is missing.
    #[error("`{}` line 1: no column `{column}`, found {found}", path.display())]
    MissingColumn { path: PathBuf, column: &'static str, found: String },
    /// A row is longer or shorter than the header.
    #[error("`{}` line {line}: {found} cells, but the header has {expected}", path.display())]
    RowLength { path: PathBuf, line: u64, expected: usize, found: usize },
    /// A cell does not fit its column.
    #[error("`{}` line {line}, column `{column}`: expected {expected}, found {cell:?}", path.display())]
    Cell { path: PathBuf, line: u64, column: String, expected: &'static str, cell: String },
}

impl RunError {
    /// How to fix the error.
    pub fn hint(&self) -> &str {
        match self {
            Self::ReadDirectory { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the path; it is relative to the current directory"
            }
            Self::Read { source, .. } if source.kind() == io::ErrorKind::InvalidData => DAMAGED,
            Self::ReadDirectory { .. } | Self::Read { .. } => "make it readable",
            Self::NotARun { .. } => {
                "pass a run's directory, that of one rank (rank_0, Nov20_16-05-09-rank0-1f0a9c42), or the one that holds all runs"
            }
            Self::Malformed { .. } | Self::MissingColumn { .. } | Self::RowLength { .. } | Self::Cell { .. } => DAMAGED,
        }
    }
}
