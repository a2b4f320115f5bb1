//! Errors of `trainmon report`.

use trainmon_report::{Advise, OutputError};
use trainmon_runs::steps::ReadRunError;

/// An error of `trainmon report`. A failed call leaves no file: the output appears complete or not at all.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// The report cannot be serialized as JSON.
    #[error("cannot write the report as JSON")]
    Json(#[from] serde_json::Error),
    /// The output cannot be created.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl Advise for ReportError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::Json(_) => "this is a bug in trainmon: please report it",
            Self::Output(error) => error.hint(),
        }
    }
}
