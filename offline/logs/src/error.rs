//! Why a log cannot be read.

use std::io;
use std::path::PathBuf;

use trainmon_report::Advise;

/// What is wrong with a log, or with what was asked of it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum LogError {
    /// Nothing is there.
    #[error("`{}` does not exist", path.display())]
    Missing { path: PathBuf },
    /// It cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// There is nothing in it.
    #[error("`{}` is empty", path.display())]
    Empty { path: PathBuf },
    /// It is none of the formats.
    #[error("`{}` is not a log that trainmon reads: {found}", path.display())]
    Unknown { path: PathBuf, found: String, hint: &'static str },
    /// It is one of the formats and damaged so that nothing can be read.
    #[error("`{}` is damaged: {found}", path.display())]
    Damaged { path: PathBuf, found: String },
    /// It has no number.
    #[error("`{}` has no number with a step", path.display())]
    NoNumbers { path: PathBuf, hint: String },
    /// A column that was named is not there.
    #[error("`{}` has no column `{name}`: found {found}", path.display())]
    NoSuchColumn { path: PathBuf, name: String, found: String, hint: String },
    /// A column that was named has no number.
    #[error("`{}`: column `{name}` holds no number: {found}", path.display())]
    NoNumbersIn { path: PathBuf, name: String, found: String },
    /// A column that was named as the step holds other numbers.
    #[error("`{}`: column `{name}` holds no steps: {found}", path.display())]
    NotSteps { path: PathBuf, name: String, found: String },
}

/// What a person can give: a hint.
pub const FORMATS: &str = "give a run of trainmon or msprobe, CSV, JSON Lines, trainer_state.json, TensorBoard event files, a \
    .wandb file, a run of mlruns, or a text log of Megatron-LM";

impl Advise for LogError {
    fn hint(&self) -> &str {
        match self {
            Self::Missing { .. } => "check the path; it is relative to the current directory",
            Self::Read { .. } => "make it readable",
            Self::Empty { .. } => "the first numbers appear when the training has logged its first step",
            Self::Unknown { hint, .. } => hint,
            Self::Damaged { .. } => "copy it again from where it was written",
            Self::NoNumbers { hint, .. } | Self::NoSuchColumn { hint, .. } => hint,
            Self::NoNumbersIn { .. } => "name a column of numbers",
            Self::NotSteps { .. } => "name another column, or count the rows with --step row",
        }
    }
}
