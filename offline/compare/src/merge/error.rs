//! Errors of merging tables.

use std::io;
use std::path::PathBuf;
use trainmon_report::Advise;

/// An error of merging tables.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum MergeError {
    /// A file cannot be read, or is not what its name says.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    /// The directory has no tables of ranks.
    #[error("`{}` has no `compare_result_rank*.csv` or `.xlsx`", path.display())]
    NoTables { path: PathBuf },
    /// Two tables have the same rank.
    #[error("`{}` and `{}` have the same rank, {rank}", first.display(), second.display())]
    Twice { rank: u64, first: PathBuf, second: PathBuf },
    /// A requested column does not exist.
    #[error("`{}` has no column `{column}`; it has {columns}", path.display())]
    NoSuchColumn { path: PathBuf, column: String, columns: String },
    /// The configuration is invalid.
    #[error("`{}` is not YAML of the form `{{api: [prefixes of names], compare_index: [columns]}}`", path.display())]
    Choice { path: PathBuf, source: Box<serde_saphyr::Error> },
    /// A file cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

impl MergeError {
    pub(super) fn read(path: &std::path::Path, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Read { path: path.to_path_buf(), source: source.into() }
    }

    pub(super) fn write(path: &std::path::Path, source: io::Error) -> Self {
        Self::Write { path: path.to_path_buf(), source: source.into() }
    }
}

impl Advise for MergeError {
    fn hint(&self) -> &str {
        match self {
            Self::Read { .. } => "check the path; tables are the CSV and XLSX files of `compare`",
            Self::NoTables { .. } => {
                "run `compare -o DIR` on directories of several ranks and pass DIR; with several steps, pass DIR/step0"
            }
            Self::Twice { .. } => "a directory may contain the tables of one comparison only: move the others",
            Self::NoSuchColumn { .. } => "columns differ between modes: statistics, tensor, checksums",
            Self::Choice { .. } => "for example, `api: [Distributed]` and `compare_index: [Max diff]` on two lines",
            Self::Write { .. } => "check the free disk space and the permissions of the directory; no files were left",
        }
    }
}
