//! Errors of merging the rows of a run's ranks.

use std::io;
use std::path::PathBuf;

use trainmon_exporters::ExportError;
use trainmon_report::{Advise, OutputError};

use crate::steps::ReadRunError;

/// An error of merging ranks. No files are left then: the output directory appears complete or not at all.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum MergeRanksError {
    /// The run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadRunError),
    /// A rank has no layout.
    #[error("rank {rank} has no `layout.json` in `{}`", path.display())]
    NoLayout { rank: u32, path: PathBuf },
    /// The run has one rank and no layout.
    #[error("`{}` is the only rank and has no `layout.json`: nothing to merge", path.display())]
    OneRank { path: PathBuf },
    /// The layout cannot be read.
    #[error("cannot read `{}/layout.json`", path.display())]
    ReadLayout { path: PathBuf, source: io::Error },
    /// The layout is malformed.
    #[error("`{}/layout.json` is malformed: {found}", path.display())]
    MalformedLayout { path: PathBuf, found: String },
    /// A CSV file cannot be written.
    #[error("the rows of step {step} cannot be written")]
    WriteRows { step: u64, source: ExportError },
    /// The output exists or cannot be created.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl Advise for MergeRanksError {
    fn hint(&self) -> &str {
        match self {
            Self::Read(error) => error.hint(),
            Self::OneRank { .. } => {
                "a run of one rank needs no merging; for several ranks, pass the directory that contains all of them"
            }
            Self::NoLayout { .. } => {
                "from this version on, each of several ranks writes it at its first step, next to its CSV files: record the run again"
            }
            Self::ReadLayout { .. } => "check the permissions of the file",
            Self::MalformedLayout { .. } => "the file was damaged, edited by hand, or written by a later version",
            Self::WriteRows { .. } => "check the free disk space and the permissions of the directory above the output",
            Self::Output(error) => error.hint(),
        }
    }
}
