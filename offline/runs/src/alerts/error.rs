//! Why the rules cannot look at a run.

use std::path::PathBuf;

use trainmon_report::Advise;

use crate::steps::ReadRunError;

/// What is wrong with a run, or with what was asked of it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum JudgeError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// There is nothing in it yet.
    #[error("`{}` has no step yet", path.display())]
    NoSteps { path: PathBuf },
    /// No rule looks at anything that was recorded.
    #[error("no rule applies to `{}`: {missing}", path.display())]
    NothingToJudge { path: PathBuf, missing: String, hint: String },
}

impl Advise for JudgeError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::NoSteps { .. } => "the first appears when the training has made its first step",
            Self::NothingToJudge { hint, .. } => hint,
        }
    }
}
