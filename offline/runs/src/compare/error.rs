//! Why runs cannot be compared.

use std::io;
use std::path::PathBuf;

use trainmon_dump::journal;
use trainmon_report::Advise;

use crate::recover::RecoverError;
use crate::run::{RanksError, RunError};

/// Nothing is left behind: the output directory appears whole or not at all.
#[derive(Debug, thiserror::Error)]
pub enum CompareRunsError {
    /// A run's files cannot be read.
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
    /// What is there cannot be looked at.
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
    /// The output exists.
    #[error("`{}` exists already", path.display())]
    OutputExists {
        /// Which.
        path: PathBuf,
    },
    /// The output cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl From<RanksError> for CompareRunsError {
    fn from(error: RanksError) -> Self {
        match error {
            RanksError::Run(error) => Self::Run(error),
            RanksError::Journal(error) => Self::Journal(error),
            RanksError::Journals(error) => Self::Journals(error),
            RanksError::Missing { path } => Self::Missing { path },
            RanksError::Read { path, source } => Self::Read { path, source },
            RanksError::NotARun { path, found } => Self::NotARun { path, found },
        }
    }
}

impl Advise for CompareRunsError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::Journal(error) => error.hint(),
            Self::Journals(error) => error.hint(),
            Self::Missing { .. } => "check the path; it is relative to the current directory",
            Self::Read { .. } => "see that no link on the way leads back to itself, and that you may read it",
            Self::NotARun { .. } => {
                "both sides must be a monitor's output: the directory with a rank's CSV files, the one that holds those of \
                 all ranks, or a journal"
            }
            Self::OutputExists { .. } => "name another directory with --output, or remove this one",
            Self::Write { .. } => "see that the disk has room and the directory above the output can be written",
        }
    }
}
