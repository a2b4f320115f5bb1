//! Errors of converting a run.

use std::io;
use std::path::PathBuf;

use trainmon_exporters::ExportError;
use trainmon_report::Advise;

use trainmon_run_files::RunError;

/// An error of converting a run. No files are left then: the output directory appears complete or not at all.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The output exists.
    #[error("`{}` already exists", path.display())]
    OutputExists { path: PathBuf },
    /// The output directory cannot be created or moved into place.
    #[error("cannot create `{}`", path.display())]
    MakeOutput { path: PathBuf, source: io::Error },
    /// An event file cannot be written.
    #[error("cannot write the event files")]
    Write(#[from] ExportError),
}

impl Advise for ConvertError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::OutputExists { .. } => "pass another directory with `--output`, or remove this one",
            Self::MakeOutput { .. } => "pass a writable directory with `--output`",
            Self::Write(source) => match source {
                ExportError::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                    "free space on that disk, or pass a directory on another one with `--output`"
                }
                _ => "pass a writable directory with `--output`",
            },
        }
    }
}
