//! Why a run's files cannot be read or written.

use std::io;
use std::path::PathBuf;

const DAMAGED: &str = "the file was damaged or changed by hand: restore it, or take it out of the directory";

/// A file of a run cannot be written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum WriteError {
    /// The file could not be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// Its directory could not be made.
    #[error("cannot create directory `{}`", path.display())]
    CreateDirectory { path: PathBuf, source: io::Error },
}

/// What is wrong with a run directory or a table in it. A table's header is line 1.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum RunError {
    /// The directory cannot be read.
    #[error("cannot read directory `{}`", path.display())]
    ReadDirectory { path: PathBuf, source: io::Error },
    /// There is no table of a monitor.
    #[error("`{}` is no run directory: {found}", path.display())]
    NotARun { path: PathBuf, found: &'static str },
    /// A file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A row is no CSV, or not text.
    #[error("`{}` line {line}: not a row of a CSV file", path.display())]
    Malformed { path: PathBuf, line: u64, source: csv::Error },
    /// A column that every table has is missing.
    #[error("`{}` line 1: no column `{column}`, found {found}", path.display())]
    MissingColumn { path: PathBuf, column: &'static str, found: String },
    /// A row is longer or shorter than the header.
    #[error("`{}` line {line}: {found} cells, the header has {expected}", path.display())]
    RowLength { path: PathBuf, line: u64, expected: usize, found: usize },
    /// A cell is not what its column holds.
    #[error("`{}` line {line}, column `{column}`: expected {expected}, found {cell:?}", path.display())]
    Cell { path: PathBuf, line: u64, column: String, expected: &'static str, cell: String },
}

impl RunError {
    /// What to do about it.
    pub fn hint(&self) -> &str {
        match self {
            Self::ReadDirectory { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the path; it is relative to the current directory"
            }
            Self::Read { source, .. } if source.kind() == io::ErrorKind::InvalidData => DAMAGED,
            Self::ReadDirectory { .. } | Self::Read { .. } => "make it readable",
            Self::NotARun { .. } => {
                "give a run's directory, that of one rank (rank_0, Nov20_16-05-09-rank0-1f0a9c42), or the one that holds all runs"
            }
            Self::Malformed { .. } | Self::MissingColumn { .. } | Self::RowLength { .. } | Self::Cell { .. } => DAMAGED,
        }
    }
}
