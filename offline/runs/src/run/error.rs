//! Why a run's files cannot be read.

use std::io;
use std::path::PathBuf;

use trainmon_dump::journal;
use trainmon_report::Advise;

use crate::recover::RecoverError;

const DAMAGED: &str = "the file was damaged or changed by hand: restore it, or take it out of the directory";

/// What is wrong with a run directory or a table in it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The directory cannot be read.
    #[error("cannot read directory `{}`", path.display())]
    ReadDirectory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no table of a monitor.
    #[error("`{}` is no run directory: {found}", path.display())]
    NotARun {
        /// Which.
        path: PathBuf,
        /// What is there instead.
        found: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A row is no CSV, or not text.
    #[error("`{}` line {line}: not a row of a CSV file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line; the header is line 1.
        line: u64,
        /// Why.
        source: csv::Error,
    },
    /// A column that every table has is missing.
    #[error("`{}` line 1: no column `{column}`, found {found}", path.display())]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// The header.
        found: String,
    },
    /// A row is longer or shorter than the header.
    #[error("`{}` line {line}: {found} cells, the header has {expected}", path.display())]
    RowLength {
        /// The file.
        path: PathBuf,
        /// The line; the header is line 1.
        line: u64,
        /// Cells of the header.
        expected: usize,
        /// Cells of the row.
        found: usize,
    },
    /// A cell is not what its column holds.
    #[error("`{}` line {line}, column `{column}`: expected {expected}, found {cell:?}", path.display())]
    Cell {
        /// The file.
        path: PathBuf,
        /// The line; the header is line 1.
        line: u64,
        /// The column.
        column: String,
        /// What the column holds.
        expected: &'static str,
        /// What the cell holds.
        cell: String,
    },
}

impl Advise for RunError {
    fn hint(&self) -> &str {
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

/// Why the ranks of a run cannot be found or read.
#[derive(Debug, thiserror::Error)]
pub enum RanksError {
    /// A rank's CSV files cannot be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A journal cannot be read.
    #[error(transparent)]
    Journal(#[from] journal::RecoverError),
    /// Journals cannot be found.
    #[error(transparent)]
    Journals(#[from] RecoverError),
    /// Nothing is there.
    #[error("`{}` does not exist", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The path cannot be looked at.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something else is there.
    #[error("`{}` is no monitored run: {found}", path.display())]
    NotARun {
        /// The path.
        path: PathBuf,
        /// What is there instead.
        found: &'static str,
    },
}

impl Advise for RanksError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::Journal(error) => error.hint(),
            Self::Journals(error) => error.hint(),
            Self::Missing { .. } => "check the path; it is relative to the current directory",
            Self::Read { .. } => "see that no link on the way leads back to itself, and that you may read it",
            Self::NotARun { .. } => {
                "give a monitor's output: a run's directory, that of one of its ranks, the one that holds all runs, or a \
                 journal"
            }
        }
    }
}
