//! Why a run cannot be read.

use std::io;
use std::path::PathBuf;

use trainmon_run_files::RunError;

use crate::journals::JournalsError;

/// What is wrong with a path that should be a run, or with its files.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum ReadRunError {
    /// A run's files cannot be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A journal cannot be read.
    #[error(transparent)]
    Journal(#[from] trainmon_journal::RecoverError),
    /// Journals cannot be found.
    #[error(transparent)]
    Journals(#[from] JournalsError),
    /// Nothing is there.
    #[error("`{}` does not exist", path.display())]
    Missing { path: PathBuf },
    /// What is there cannot be looked at.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Something else is there.
    #[error("`{}` is no monitored run: {found}", path.display())]
    NotARun { path: PathBuf, found: &'static str },
}

impl ReadRunError {
    /// Whether something is there that is no monitored run.
    pub fn is_no_run(&self) -> bool {
        matches!(self, Self::NotARun { .. } | Self::Run(RunError::NotARun { .. }))
    }

    /// What to do about it.
    pub fn hint(&self) -> &str {
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
        }
    }
}
