//! Errors of writing a capture.

use std::io;
use std::path::PathBuf;

use super::super::error::CaptureError;

/// A capture's directory or file cannot be created or written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum WriteError {
    /// A write error.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A read error.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A symbolic link, or something else that is not a directory, is in the place of a directory.
    #[error("`{}` is a symbolic link or not a directory", path.display())]
    NotADirectory { path: PathBuf },
    /// Another running process captures into the same directory.
    #[error("`{}` is being written by another process", path.display())]
    InUse { path: PathBuf },
    /// The capture to compare with cannot be read.
    #[error("`bench_path`")]
    Bench { source: CaptureError },
    /// The capture to compare with lacks this step and rank.
    #[error("`bench_path`: `{}` does not contain step {step} of rank {rank}", path.display())]
    NoBench { path: PathBuf, step: u64, rank: u64 },
    /// The file is not a record file, or has an unknown version.
    #[error("`{}` is not a record file of a capture", path.display())]
    NoRecords { path: PathBuf },
}

impl WriteError {
    /// How to fix the error.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Write { .. } => "check that the disk has free space and that the directory is writable",
            Self::Read { .. } => "check the path and its permissions",
            Self::NotADirectory { .. } => {
                "remove it, or set another `dump_path`: symbolic links below `dump_path` are not followed"
            }
            Self::InUse { .. } => {
                "give each process its own rank (`start(rank_id=…)`), or each run its own `dump_path`"
            }
            Self::Bench { source } => source.hint(),
            Self::NoBench { .. } => "pass a capture of the same steps and ranks, or one rank's directory",
            Self::NoRecords { .. } => "pass a rank directory of an interrupted capture, or a directory above it",
        }
    }
}
