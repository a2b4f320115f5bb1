//! Errors when reading a run.

use std::io;
use std::path::PathBuf;

use trainmon_run_files::RunError;

use crate::journals::JournalsError;

/// A path that is not a run, or a damaged run.
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
    /// The path does not exist.
    #[error("`{}` does not exist", path.display())]
    Missing { path: PathBuf },
    /// The path cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The path is something else.
    #[error("`{}` is not a monitored run: {found}", path.display())]
    NotARun { path: PathBuf, found: &'static str },
}

impl ReadRunError {
    /// Whether the path exists and is not a monitored run.
    pub fn is_no_run(&self) -> bool {
        matches!(self, Self::NotARun { .. } | Self::Run(RunError::NotARun { .. }))
    }

    /// Advice on what to do.
    pub fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::Journal(error) => error.hint(),
            Self::Journals(error) => error.hint(),
            Self::Missing { .. } => "check the path; it is relative to the current directory",
            Self::Read { .. } => "check the permissions, and that no symbolic link on the path points to itself",
            Self::NotARun { .. } => {
                "pass the output of a monitor for both sides: a rank's directory with CSV files, the directory of all ranks, \
                 or a journal"
            }
        }
    }
}
