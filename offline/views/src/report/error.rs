//! Why there is no report.

use trainmon_report::{Advise, OutputError};
use trainmon_runs::steps::ReadRunError;

/// Nothing is left behind: a file appears whole or not at all.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// The report is no JSON.
    #[error("cannot write the report as JSON")]
    Json(#[from] serde_json::Error),
    /// There is no output.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl Advise for ReportError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::Json(_) => "this is a fault of trainmon: please report it",
            Self::Output(error) => error.hint(),
        }
    }
}
