//! Why there is no report.

use std::io;
use std::path::PathBuf;

use trainmon_report::Advise;
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

impl Advise for ReportError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::Json(_) => "this is a fault of trainmon: please report it",
            Self::OutputExists { .. } => "name another file with --output, or remove this one",
            Self::Write { .. } => "see that the disk has room and the directory of the output can be written",
        }
    }
}
