//! Why a capture cannot be written.

use std::io;
use std::path::PathBuf;

use super::super::error::CaptureError;

/// A capture's directory or file could not be made or written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum WriteError {
    /// The system refuses.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The system refuses to give back what was written.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A symbolic link, or something else that is no directory, stands where a directory belongs.
    #[error("`{}` is no directory of its own", path.display())]
    NotADirectory { path: PathBuf },
    /// Another process that still runs captures into the same directory.
    #[error("`{}` is being written by another process", path.display())]
    InUse { path: PathBuf },
    /// What the capture is to be held against cannot be read.
    #[error("`bench_path`")]
    Bench { source: CaptureError },
    /// What the capture is to be held against has not this step and rank.
    #[error("`bench_path`: `{}` has no step {step} of rank {rank}", path.display())]
    NoBench { path: PathBuf, step: u64, rank: u64 },
    /// Not a record file, or none of a version known here.
    #[error("`{}` is no record file of a capture", path.display())]
    NoRecords { path: PathBuf },
}

impl WriteError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Write { .. } => "check that the disk has room and the directory may be written",
            Self::Read { .. } => "check the path and its permissions",
            Self::NotADirectory { .. } => {
                "symbolic links below `dump_path` are not followed; remove it, or name another `dump_path`"
            }
            Self::InUse { .. } => {
                "give each process a rank of its own (`start(rank_id=…)`), or each run its own `dump_path`"
            }
            Self::Bench { source } => source.hint(),
            Self::NoBench { .. } => "name a capture of the same steps and ranks, or one rank's directory",
            Self::NoRecords { .. } => "name a rank directory of a capture that was cut short, or a directory above it",
        }
    }
}
