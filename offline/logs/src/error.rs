//! Errors of reading a log.

use std::io;
use std::path::PathBuf;

use trainmon_report::Advise;

/// A problem with a log or with the requested columns.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum LogError {
    /// The path does not exist.
    #[error("`{}` does not exist", path.display())]
    Missing { path: PathBuf },
    /// The file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file is empty.
    #[error("`{}` is empty", path.display())]
    Empty { path: PathBuf },
    /// The format is unknown.
    #[error("`{}` is not a log that trainmon reads: {found}", path.display())]
    Unknown { path: PathBuf, found: String, hint: &'static str },
    /// The format is known but nothing can be read.
    #[error("`{}` is damaged: {found}", path.display())]
    Damaged { path: PathBuf, found: String },
    /// The log has no numbers.
    #[error("`{}` has no numbers with a step", path.display())]
    NoNumbers { path: PathBuf, hint: String },
    /// A named column does not exist.
    #[error("`{}` has no column `{name}`: found {found}", path.display())]
    NoSuchColumn { path: PathBuf, name: String, found: String, hint: String },
    /// A named column has no numbers.
    #[error("`{}`: column `{name}` holds no number: {found}", path.display())]
    NoNumbersIn { path: PathBuf, name: String, found: String },
    /// The column named as the step holds other numbers.
    #[error("`{}`: column `{name}` holds no steps: {found}", path.display())]
    NotSteps { path: PathBuf, name: String, found: String },
}

/// The hint that lists the accepted formats.
pub const FORMATS: &str = "pass a run of trainmon or msprobe, CSV, JSON Lines, trainer_state.json, TensorBoard event files, a \
    .wandb file, a run of mlruns, or a text log of Megatron-LM";

impl Advise for LogError {
    fn hint(&self) -> &str {
        match self {
            Self::Missing { .. } => "check the path; it is relative to the current directory",
            Self::Read { .. } => "make it readable",
            Self::Empty { .. } => "try again after the training has logged its first step",
            Self::Unknown { hint, .. } => hint,
            Self::Damaged { .. } => "copy it again from its original location",
            Self::NoNumbers { hint, .. } | Self::NoSuchColumn { hint, .. } => hint,
            Self::NoNumbersIn { .. } => "name a column of numbers",
            Self::NotSteps { .. } => "name another column, or count the rows with `--step row`",
        }
    }
}
