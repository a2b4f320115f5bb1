//! A table's file, kept open or reopened for each part that is read.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Whether files stay open between reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileUse {
    /// Every file stays open until it is read to its end: one that is replaced meanwhile is read in its old version.
    #[default]
    Held,
    /// No file stays open between reads: a process may only have about a thousand open files.
    Reopened,
}

/// Reads a file from its beginning.
pub(crate) enum TableFile {
    Held(File),
    Reopened {
        path: PathBuf,
        at: u64,
        /// The inode of the file that was opened first; `None` if it is not available.
        number: Option<u64>,
    },
}

impl TableFile {
    /// `file`: the open file, at its beginning.
    pub(crate) fn new(file: File, path: &Path, how: FileUse) -> Self {
        match how {
            FileUse::Held => Self::Held(file),
            FileUse::Reopened => {
                let number = file.metadata().ok().map(|file| file.ino());
                Self::Reopened { path: path.to_path_buf(), at: 0, number }
            }
        }
    }
}

impl Read for TableFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Held(file) => file.read(into),
            Self::Reopened { path, at, number } => {
                let mut file = File::open(path)?;
                if number.is_some_and(|number| file.metadata().is_ok_and(|file| file.ino() != number)) {
                    return Err(io::Error::other("the file was replaced while it was read: run the command again"));
                }
                file.seek(SeekFrom::Start(*at))?;
                let read = file.read(into)?;
                *at += read as u64;
                Ok(read)
            }
        }
    }
}
