//! Errors of writing and reading journals.

use std::io;
use std::path::PathBuf;

use trainmon_core::Step;

/// The journal cannot be created or written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum JournalError {
    /// The file or its directory cannot be created.
    #[error("cannot create the journal `{}`", path.display())]
    Create { path: PathBuf, source: io::Error },
    /// The whole size cannot be reserved on the disk.
    #[error("cannot reserve {bytes} bytes for the journal `{}`", path.display())]
    Reserve { path: PathBuf, bytes: u64, source: io::Error },
    /// The run's description cannot be written.
    #[error("cannot describe the run in the journal `{}`", path.display())]
    Facts { path: PathBuf, source: serde_json::Error },
    /// A write or flush failed.
    #[error("cannot write the journal `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// Another process truncated the file while it was in use; the writer does not touch it again.
    #[error("the journal `{}` was truncated from {expected} to {found} bytes while in use", path.display())]
    Shrunk { path: PathBuf, expected: u64, found: u64 },
    /// The file was deleted while in use, so further writes would be lost.
    #[error("the journal `{}` was deleted while in use", path.display())]
    Deleted { path: PathBuf },
    /// A step is larger than the whole ring.
    #[error("step {step} has {bytes} bytes, but the journal `{}` can hold only {room}", path.display())]
    TooLarge { path: PathBuf, step: Step, bytes: u64, room: u64 },
    /// An alert is larger than the ring of alerts.
    #[error("an alert has {bytes} bytes, but the journal `{}` can hold only {room}", path.display())]
    AlertTooLarge { path: PathBuf, bytes: u64, room: u64 },
}

impl JournalError {
    /// How to fix the error.
    pub fn hint(&self) -> &'static str {
        let (Self::Create { source, .. } | Self::Reserve { source, .. } | Self::Write { source, .. }) = self else {
            return match self {
                Self::Shrunk { .. } => {
                    "do not change the file while the training runs; `trainmon recover` reads its remaining content"
                }
                Self::Deleted { .. } => {
                    "set `journal.dir` to a directory that the system does not clean up, for example at logout"
                }
                Self::TooLarge { .. } | Self::AlertTooLarge { .. } => "raise `journal.size_mb`",
                _ => "this is a bug in trainmon: please report it",
            };
        };
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free space on that disk, lower `journal.size_mb`, or set `journal.dir` to another directory"
            }
            _ => "make the directory writable, or set `journal.dir` to another directory",
        }
    }
}

/// Why a file's first bytes are not a journal header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    Empty,
    NotAJournal,
    CutOff { expected: u64, length: u64 },
    Damaged,
    Version { found: u32, known: u32 },
}

/// A file that cannot be read as a journal. Damage inside a journal is a [`Fault`](super::Fault).
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum RecoverError {
    /// The file cannot be opened or read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The path is a directory.
    #[error("`{}` is a directory, not a journal", path.display())]
    Directory { path: PathBuf },
    /// The file is empty.
    #[error("`{}` is empty", path.display())]
    Empty { path: PathBuf },
    /// The file has another magic number.
    #[error("`{}` is not a journal: it does not begin with `trainmonJournal`", path.display())]
    NotAJournal { path: PathBuf },
    /// The file ends within the run's description.
    #[error("`{}` is truncated to {found} bytes, but the description of the run ends at {expected}", path.display())]
    CutOff { path: PathBuf, expected: u64, found: u64 },
    /// Another version of trainmon wrote the file.
    #[error("`{}` has format version {found}, this trainmon reads version {known}", path.display())]
    Version { path: PathBuf, found: u32, known: u32 },
    /// The first page fails its checksum.
    #[error("the header of `{}` is damaged: its checksum does not match", path.display())]
    HeaderDamaged { path: PathBuf },
    /// The run's description fails its checksum.
    #[error("the description of the run in `{}` is damaged: its checksum does not match", path.display())]
    FactsDamaged { path: PathBuf },
    /// The run's description is complete, but not what this version writes.
    #[error("the description of the run in `{}` is invalid", path.display())]
    FactsUnreadable { path: PathBuf, source: serde_json::Error },
}

impl RecoverError {
    /// How to fix the error.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the path; a journal is in its rank's CSV run directory and is named `journal_rank<N>.tmj`"
            }
            Self::Read { .. } => "check the permissions of the file, and its disk",
            Self::Directory { .. } => "pass a journal file",
            Self::Empty { .. } | Self::CutOff { .. } => {
                "the run ended while it created the file, or a copy is incomplete: copy the original again if there is one"
            }
            Self::NotAJournal { .. } => "pass a journal, which is named `journal_rank<N>.tmj`",
            Self::Version { .. } | Self::FactsUnreadable { .. } => "use the trainmon version that wrote the file",
            Self::HeaderDamaged { .. } | Self::FactsDamaged { .. } => {
                "use an undamaged copy of the file: the rest cannot be read without this part"
            }
        }
    }
}

impl HeaderFault {
    /// Adds the file's path.
    pub(super) fn of(self, path: &std::path::Path) -> RecoverError {
        let path = path.to_path_buf();
        match self {
            Self::Empty => RecoverError::Empty { path },
            Self::NotAJournal => RecoverError::NotAJournal { path },
            Self::CutOff { expected, length } => RecoverError::CutOff { path, expected, found: length },
            Self::Damaged => RecoverError::HeaderDamaged { path },
            Self::Version { found, known } => RecoverError::Version { path, found, known },
        }
    }
}
