//! Why the rules cannot look at a run.

use std::path::PathBuf;

use trainmon_report::Advise;

use crate::steps::ReadRunError;

/// What is wrong with a run, or with what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadRunError),
    /// There is nothing in it yet.
    #[error("`{}` has no step yet", path.display())]
    NoSteps {
        /// The run.
        path: PathBuf,
    },
    /// No rule looks at anything that was recorded.
    #[error("no rule applies to `{}`: {missing}", path.display())]
    NothingToJudge {
        /// The run or log.
        path: PathBuf,
        /// What the rules look at.
        missing: String,
        /// What to do.
        hint: String,
    },
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
