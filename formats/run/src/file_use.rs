//! A table's file, held open or opened anew for each part that is read.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Whether files stay open between reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileUse {
    /// Each is open until it is read to its end: one that is replaced meanwhile is read as it was.
    #[default]
    Held,
    /// None is open between reads, of however many: a process may hold a thousand or so.
    Reopened,
}

/// Reads a file from its beginning.
pub(crate) enum TableFile {
    Held(File),
    Reopened {
        path: PathBuf,
        at: u64,
        /// The file that was opened first, by its number; none where that cannot be had.
        number: Option<u64>,
    },
}

impl TableFile {
    /// `file`: the open one, at its beginning.
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
                    return Err(io::Error::other(
                        "another file took its place while it was read: run the command again",
                    ));
                }
                file.seek(SeekFrom::Start(*at))?;
                let read = file.read(into)?;
                *at += read as u64;
                Ok(read)
            }
        }
    }
}
