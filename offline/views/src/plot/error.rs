//! Errors of `trainmon plot`.

use std::path::PathBuf;

use trainmon_report::{Advise, OutputError};
use trainmon_runs::steps::ReadRunError;

/// An error of `trainmon plot`. A failed call leaves no file: the output appears complete or not at all.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum PlotError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// The run has no steps yet.
    #[error("`{}` has no steps yet", path.display())]
    NoSteps { path: PathBuf },
    /// The output's extension is not a known format.
    #[error("`{}` does not end with `.html`, `.svg` or `.png`", path.display())]
    UnknownFormat { path: PathBuf },
    /// The output cannot be created.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The picture cannot be drawn.
    #[error("cannot draw the curves: {why}")]
    Draw { why: String },
    /// The data cannot be written as JSON.
    #[error("cannot write the data of the page")]
    Data { source: serde_json::Error },
}

impl Advise for PlotError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::NoSteps { .. } => "try again after the training has finished its first step",
            Self::UnknownFormat { .. } => "name the output `run.html`, `run.svg` or `run.png`",
            Self::Output(error) => error.hint(),
            Self::Draw { .. } | Self::Data { .. } => "this is a bug in trainmon: please report it",
        }
    }
}
