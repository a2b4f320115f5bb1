//! Errors of judging a run.

use std::path::PathBuf;

use trainmon_report::Advise;

use crate::steps::ReadRunError;

/// An error of a run or of the options.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum JudgeError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// The run is empty so far.
    #[error("`{}` has no step yet", path.display())]
    NoSteps { path: PathBuf },
    /// No rule applies to the recorded signals.
    #[error("no rule applies to `{}`: {missing}", path.display())]
    NothingToJudge { path: PathBuf, missing: String, hint: String },
}

impl Advise for JudgeError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::NoSteps { .. } => "wait until the training has completed its first step",
            Self::NothingToJudge { hint, .. } => hint,
        }
    }
}
