//! Why runs cannot be compared.

use trainmon_baseline::ReadRunError;
use trainmon_report::{Advise, OutputError};

/// Nothing is left behind: the output directory appears whole or not at all.
#[derive(Debug, thiserror::Error)]
pub enum CompareRunsError {
    /// A run's files cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// There is no output.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl Advise for CompareRunsError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::Output(error) => error.hint(),
        }
    }
}
