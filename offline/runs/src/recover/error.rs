//! Errors of recovering a journal.

use std::io;
use std::path::PathBuf;

use trainmon_baseline::JournalsError;
use trainmon_exporters::ExportError;
use trainmon_report::Advise;

/// An error of recovering a journal. No files are left then: the output directory appears complete or not at all.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The file is not a journal, or its beginning is damaged.
    #[error(transparent)]
    Journal(#[from] trainmon_journal::RecoverError),
    /// The journals cannot be listed.
    #[error(transparent)]
    Journals(#[from] JournalsError),
    /// The output exists.
    #[error("`{}` already exists", path.display())]
    OutputExists { path: PathBuf },
    /// The output directory cannot be created or moved into place.
    #[error("cannot create `{}`", path.display())]
    MakeOutput { path: PathBuf, source: io::Error },
    /// A CSV file cannot be written.
    #[error("the rows of step {step} cannot be written")]
    WriteRows { step: u64, source: ExportError },
    /// The calls of collective operations cannot be written.
    #[error("cannot write `{}`", path.display())]
    WriteCalls { path: PathBuf, source: io::Error },
    /// The alerts cannot be written.
    #[error("cannot write `{}`", path.display())]
    WriteAlerts { path: PathBuf, source: io::Error },
}

impl Advise for RecoverError {
    fn hint(&self) -> &str {
        match self {
            Self::Journal(error) => error.hint(),
            Self::Journals(error) => error.hint(),
            Self::OutputExists { .. } => "pass another directory with `--output`, or remove this one",
            Self::MakeOutput { .. } | Self::WriteAlerts { .. } | Self::WriteCalls { .. } | Self::WriteRows { .. } => {
                "check the free disk space and the permissions of the directory above the output"
            }
        }
    }
}
