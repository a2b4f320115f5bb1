//! What can go wrong with a journal.

use std::io;
use std::path::PathBuf;

use trainmon_core::Step;

/// The journal cannot be made or written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum JournalError {
    /// The file or its directory could not be made.
    #[error("cannot create the journal `{}`", path.display())]
    Create { path: PathBuf, source: io::Error },
    /// Its whole size could not be reserved on the disk.
    #[error("cannot reserve {bytes} bytes for the journal `{}`", path.display())]
    Reserve { path: PathBuf, bytes: u64, source: io::Error },
    /// The facts of the run could not be written down.
    #[error("cannot describe the run in the journal `{}`", path.display())]
    Facts { path: PathBuf, source: serde_json::Error },
    /// A write or a flush failed.
    #[error("cannot write the journal `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// Somebody cut the file short while it was in use; it is not touched again.
    #[error("the journal `{}` was cut from {expected} to {found} bytes while in use", path.display())]
    Shrunk { path: PathBuf, expected: u64, found: u64 },
    /// Somebody deleted the file while it was in use: what is written now nobody would read.
    #[error("the journal `{}` was deleted while in use", path.display())]
    Deleted { path: PathBuf },
    /// A step, or an alert, is larger than the whole ring.
    #[error("step {step} takes {bytes} bytes, the journal `{}` has room for {room}", path.display())]
    TooLarge { path: PathBuf, step: Step, bytes: u64, room: u64 },
    /// An alert is larger than the alerts' ring.
    #[error("an alert takes {bytes} bytes, the journal `{}` has room for {room}", path.display())]
    AlertTooLarge { path: PathBuf, bytes: u64, room: u64 },
}

impl JournalError {
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        let (Self::Create { source, .. } | Self::Reserve { source, .. } | Self::Write { source, .. }) = self else {
            return match self {
                Self::Shrunk { .. } => {
                    "leave the file alone while the training runs; `trainmon recover` reads the rest"
                }
                Self::Deleted { .. } => {
                    "is the directory cleaned up by the system, at logout say? name another in `journal.dir`"
                }
                Self::TooLarge { .. } | Self::AlertTooLarge { .. } => "raise `journal.size_mb`",
                _ => "this is a fault of trainmon: please report it",
            };
        };
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free space on that disk, lower `journal.size_mb`, or name another place in `journal.dir`"
            }
            _ => "make the directory writable, or name another in `journal.dir`",
        }
    }
}

/// Why a file's first bytes are no journal's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    Empty,
    NotAJournal,
    CutOff { expected: u64, length: u64 },
    Damaged,
    Version { found: u32, known: u32 },
}

/// A file cannot be read as a journal at all. What is wrong inside one is a [`Fault`](super::Fault).
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum RecoverError {
    /// It could not be opened or read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// It is a directory.
    #[error("`{}` is a directory, not a journal", path.display())]
    Directory { path: PathBuf },
    /// It has no content.
    #[error("`{}` is empty", path.display())]
    Empty { path: PathBuf },
    /// It begins otherwise than a journal.
    #[error("`{}` is not a journal: it does not begin with `trainmonJournal`", path.display())]
    NotAJournal { path: PathBuf },
    /// It ends before the description of the run does.
    #[error("`{}` is cut off after {found} bytes, before the description of the run ends at {expected}", path.display())]
    CutOff { path: PathBuf, expected: u64, found: u64 },
    /// Another version of trainmon wrote it.
    #[error("`{}` has format version {found}, this trainmon reads version {known}", path.display())]
    Version { path: PathBuf, found: u32, known: u32 },
    /// The first page fails its checksum.
    #[error("the header of `{}` is damaged: its checksum does not match", path.display())]
    HeaderDamaged { path: PathBuf },
    /// The description of the run fails its checksum.
    #[error("the description of the run in `{}` is damaged: its checksum does not match", path.display())]
    FactsDamaged { path: PathBuf },
    /// The description of the run is whole, but not what this version writes.
    #[error("the description of the run in `{}` makes no sense", path.display())]
    FactsUnreadable { path: PathBuf, source: serde_json::Error },
}

impl RecoverError {
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the path; a journal lies in its rank's CSV run directory and is called journal_rank<N>.tmj"
            }
            Self::Read { .. } => "the file's permissions, or its disk, do not let you read it",
            Self::Directory { .. } => "name a file",
            Self::Empty { .. } | Self::CutOff { .. } => {
                "the run ended while it was made, or a copy of it was cut short: copy it again if there is another"
            }
            Self::NotAJournal { .. } => "a journal is called journal_rank<N>.tmj",
            Self::Version { .. } | Self::FactsUnreadable { .. } => "use the trainmon that wrote it",
            Self::HeaderDamaged { .. } | Self::FactsDamaged { .. } => {
                "without it the rest has no meaning: look for an undamaged copy of the file"
            }
        }
    }
}

impl HeaderFault {
    /// The same about a file.
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
