//! Errors of the analysis.

use std::io;
use std::path::PathBuf;

use trainmon_report::Advise;

/// The directory of alert files, below that of the run directories.
pub(super) const DIRECTORY: &str = "anomaly_detected";
pub(super) const FILE: &str = "anomaly.json";

/// An error of the analysis.
#[derive(Debug, thiserror::Error)]
pub enum AnomalyError {
    /// The directory cannot be read.
    #[error("cannot read directory `{}`", path.display())]
    ReadDirectory { path: PathBuf, source: io::Error },
    /// The directory contains no findings of a rank.
    #[error("`{}` has no findings: expected `rank<R>/{FILE}` in it or in its `{DIRECTORY}`", path.display())]
    NoFindings { path: PathBuf },
    /// A file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file is not a JSON object.
    #[error("`{}` is not a JSON object of findings", path.display())]
    Malformed { path: PathBuf, source: serde_json::Error },
    /// A finding lacks a field of the sort order.
    #[error("`{}`: finding `{key}`: `{field}`: expected {expected}, found {found}", path.display())]
    Field { path: PathBuf, key: String, field: &'static str, expected: &'static str, found: String },
    /// The analysis cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl Advise for AnomalyError {
    fn hint(&self) -> &str {
        match self {
            Self::ReadDirectory { .. } | Self::Read { .. } => "check the path and its permissions",
            Self::NoFindings { .. } => {
                "alerts write the file with `\"alert\": {\"dump\": true}`; without a finding, there is no file"
            }
            Self::Malformed { .. } => "a power loss truncates the file; the next run in this directory repairs it",
            Self::Field { .. } => "was the file edited by hand?",
            Self::Write { .. } => "pass a writable directory with `-o`",
        }
    }
}
