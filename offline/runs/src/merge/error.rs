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
    #[error("`{}` is the only rank there is, and has no `layout.json`: there is nothing to merge", path.display())]
    OneRank { path: PathBuf },
    /// The layout cannot be read.
    #[error("cannot read `{}/layout.json`", path.display())]
    ReadLayout { path: PathBuf, source: io::Error },
    /// The layout is malformed.
    #[error("`{}/layout.json` is not what it should be: {found}", path.display())]
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
                "a run of one rank is compared as it is; of a run of several give the directory that holds all of them"
            }
            Self::NoLayout { .. } => {
                "each rank of several writes it with its first step, beside its CSV files, since this version: record the run anew"
            }
            Self::ReadLayout { .. } => "make it readable",
            Self::MalformedLayout { .. } => "the file was damaged or changed by hand, or is a later version's",
            Self::WriteRows { .. } => "see that the disk has room and the directory above the output can be written",
            Self::Output(error) => error.hint(),
        }
    }
}
