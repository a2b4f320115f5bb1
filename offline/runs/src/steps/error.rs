//! Errors of reading a recorded run.

use std::io;
use std::path::PathBuf;

use trainmon_logs::{FORMATS, LogError};
use trainmon_report::Advise;

use trainmon_baseline::ReadRunError as RanksError;
use trainmon_run_files::RunError;

/// An error of a run or of the options.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum ReadRunError {
    /// There is no run, or its files cannot be read.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// A file of the run is damaged.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The run does not have the requested rank.
    #[error("`{}` has no rank {rank}: found {found}", path.display())]
    NoSuchRank { path: PathBuf, rank: u32, found: String },
    /// The log of another tool cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The path is neither a run nor a log.
    #[error("`{}` contains neither a monitored run nor a log that trainmon reads", path.display())]
    Nothing { path: PathBuf, source: RanksError },
    /// Columns were named for a monitored run, whose columns are known.
    #[error("`{}` is a monitored run: its columns are known and cannot be named", path.display())]
    ColumnsOfRun { path: PathBuf },
    /// The alert files cannot be read.
    #[error("cannot read `{}`", path.display())]
    Alerts { path: PathBuf, source: io::Error },
}

impl Advise for ReadRunError {
    fn hint(&self) -> &str {
        match self {
            Self::Ranks(error) => error.hint(),
            Self::Run(error) => error.hint(),
            Self::NoSuchRank { .. } => "pass one of these with `--rank`",
            Self::Log(error) => error.hint(),
            Self::Nothing { .. } => FORMATS,
            Self::ColumnsOfRun { .. } => "omit `--step`, `--loss`, `--grad-norm` and `--lr`",
            Self::Alerts { .. } => "check its permissions, or remove it from the directory",
        }
    }
}
