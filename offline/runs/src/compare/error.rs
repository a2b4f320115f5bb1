//! Errors of comparing runs.

use trainmon_baseline::ReadRunError;
use trainmon_report::{Advise, OutputError};

use crate::merge::MergeRanksError;

/// An error of comparing runs. No files are left then: the output directory appears complete or not at all.
#[derive(Debug, thiserror::Error)]
pub enum CompareRunsError {
    /// A run's files cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// The rows of a run's ranks cannot be merged.
    #[error(transparent)]
    Merge(#[from] MergeRanksError),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl Advise for CompareRunsError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::Merge(error) => error.hint(),
            Self::Output(error) => error.hint(),
        }
    }
}
