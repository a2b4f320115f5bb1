//! Why runs cannot be compared.

use trainmon_baseline::ReadRunError;
use trainmon_report::{Advise, OutputError};

use crate::merge::MergeRanksError;

/// Nothing is left behind: the output directory appears whole or not at all.
#[derive(Debug, thiserror::Error)]
pub enum CompareRunsError {
    /// A run's files cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// The rows of a run's ranks cannot be put together.
    #[error(transparent)]
    Merge(#[from] MergeRanksError),
    /// There is no output.
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
