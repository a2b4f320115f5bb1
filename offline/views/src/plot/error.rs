//! Why a run cannot be drawn.

use std::path::PathBuf;

use trainmon_report::{Advise, OutputError};
use trainmon_runs::steps::ReadRunError;

/// Nothing is left behind: the file appears whole or not at all.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum PlotError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// There is nothing in it yet.
    #[error("`{}` has no step yet", path.display())]
    NoSteps { path: PathBuf },
    /// The output's name says no format.
    #[error("`{}`: expected a name that ends with .html, .svg or .png", path.display())]
    UnknownFormat { path: PathBuf },
    /// There is no output.
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
            Self::NoSteps { .. } => "the first appears when the training has made its first step",
            Self::UnknownFormat { .. } => "name the output run.html, run.svg or run.png",
            Self::Output(error) => error.hint(),
            Self::Draw { .. } | Self::Data { .. } => "this is a fault of trainmon: please report it",
        }
    }
}
