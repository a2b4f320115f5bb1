//! Errors of a comparison.

use std::path::PathBuf;

use trainmon_capture_files::CaptureError;
use trainmon_report::Advise;

use super::matching::MappingError;
use super::thresholds::ThresholdsError;

/// An error of a comparison.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum CompareError {
    /// One of the captures cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A mapping file cannot be used.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// No baseline was given.
    #[error("no baseline was given")]
    NoGolden,
    /// A file of thresholds cannot be used.
    #[error(transparent)]
    Thresholds(#[from] ThresholdsError),
    /// No step or rank of one side has a counterpart on the other.
    #[error("no step or rank in common: `{}` has {of_target}, `{}` has {of_golden}", target.display(), golden.display())]
    NothingPairs { target: PathBuf, of_target: String, golden: PathBuf, of_golden: String },
    /// One path is a capture, the other is not.
    #[error("`{}` is {what}, the other path is not", path.display())]
    AnotherKind { path: PathBuf, what: &'static str },
    /// The captures share no property of tensors: one has checksums, the other statistics.
    #[error("no common property of tensors: `{}` has {target_has}, `{}` has {golden_has}", target.display(), golden.display())]
    NothingInCommon { target: PathBuf, target_has: &'static str, golden: PathBuf, golden_has: &'static str },
}

impl Advise for CompareError {
    fn hint(&self) -> &str {
        match self {
            Self::Capture(error) => error.hint(),
            Self::Mapping(error) => error.hint(),
            Self::NoGolden => "pass the baseline after the target",
            Self::Thresholds(_) => "configs/compare.toml has every key with its default",
            Self::NothingPairs { .. } => "steps and ranks pair by number; pass the two step or rank directories",
            Self::AnotherKind { .. } => "pass two captures, two monitored runs or two checkpoints",
            Self::NothingInCommon { .. } => "capture both with the same `summary_mode`",
        }
    }
}
