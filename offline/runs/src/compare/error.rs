//! Why runs cannot be compared.

use std::io;
use std::path::PathBuf;

use trainmon_baseline::ReadRunError;
use trainmon_report::Advise;

/// Nothing is left behind: the output directory appears whole or not at all.
#[derive(Debug, thiserror::Error)]
pub enum CompareRunsError {
    /// A run's files cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
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

impl Advise for CompareRunsError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::OutputExists { .. } => "name another directory with --output, or remove this one",
            Self::Write { .. } => "see that the disk has room and the directory above the output can be written",
        }
    }
}
