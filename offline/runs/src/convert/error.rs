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
    #[error("`{}` exists already", path.display())]
    OutputExists { path: PathBuf },
    /// The output directory cannot be created or moved into place.
    #[error("cannot make `{}`", path.display())]
    MakeOutput { path: PathBuf, source: io::Error },
    /// An event file cannot be written.
    #[error("cannot write the event files")]
    Write(#[from] ExportError),
}

impl Advise for ConvertError {
    fn hint(&self) -> &str {
        match self {
            Self::Run(error) => error.hint(),
            Self::OutputExists { .. } => "name another directory with --output, or remove this one",
            Self::MakeOutput { .. } => "name a directory that can be written with --output",
            Self::Write(source) => match source {
                ExportError::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                    "free space on that disk, or name another with --output"
                }
                _ => "name a directory that can be written with --output",
            },
        }
    }
}
