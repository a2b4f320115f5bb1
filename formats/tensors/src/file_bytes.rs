//! A file's bytes: read, or mapped if the file is large.

use std::fs::File;
use std::io::Read as _;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::buffer::Buffer;
use super::error::{FormatError, TensorFileError, part};

/// The size from which on a file is mapped: for smaller files, a mapping's page faults cost more than the copy.
const MAPPED_FROM: u64 = 1 << 20;

/// A file's bytes, or a part of them. Cheap to clone; the file stays mapped while there is a clone.
///
/// If a mapped file is truncated, reading its lost part ends the process with SIGBUS.
#[derive(Clone, Debug)]
pub struct FileBytes {
    whole: Arc<Storage>,
    range: Range<usize>,
}

#[derive(Debug)]
enum Storage {
    Held(Buffer),
    Mapped(Mmap),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Held(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

impl FileBytes {
    /// The bytes of a regular file.
    ///
    /// # Errors
    /// The file cannot be opened or read, or is not a regular file.
    pub fn open(path: &Path) -> Result<Self, TensorFileError> {
        let failed = |source| TensorFileError::Read { path: path.to_path_buf(), source };
        // Checked before opening: opening a pipe would block.
        if !path.metadata().map_err(failed)?.is_file() {
            return Err(TensorFileError::NotAFile { path: path.to_path_buf() });
        }
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length < MAPPED_FROM {
            let mut bytes = Vec::new();
            // A file that grows meanwhile is read up to its original length.
            file.by_ref().take(length).read_to_end(&mut bytes).map_err(failed)?;
            return Ok(bytes.into());
        }
        Self::map(&file).map_err(failed)
    }

    #[expect(unsafe_code, reason = "a mapping is memory that other processes may change")]
    fn map(file: &File) -> std::io::Result<Self> {
        // SAFETY: the mapping is read-only and lives as long as its `Arc`. Its bytes are plain numbers: every pattern
        // is valid. No code derives a property from a byte and relies on it later: data that must be valid (UTF-8) is
        // copied first and checked in the copy. No lock can prevent other processes from writing to the file meanwhile;
        // such a write changes numbers that are read, or ends the process (see the type).
        let map = unsafe { Mmap::map(file)? };
        let range = 0..map.len();
        Ok(Self { whole: Arc::new(Storage::Mapped(map)), range })
    }

    /// The length of the file that contains these bytes.
    pub fn file_length(&self) -> u64 {
        self.whole.bytes().len() as u64
    }

    /// The buffer of the bytes; `None` if it is shared, or the file is mapped.
    pub fn into_buffer(self) -> Option<Buffer> {
        match Arc::into_inner(self.whole)? {
            Storage::Held(bytes) => Some(bytes),
            Storage::Mapped(_) => None,
        }
    }

    /// A part of these bytes, without copying.
    ///
    /// # Errors
    /// The part is out of range.
    pub fn part(&self, what: &'static str, from: u64, length: u64) -> Result<Self, FormatError> {
        let inner = part(self, what, from, length)?;
        let from = self.range.start + from as usize;
        let range = from..from + inner.len();
        Ok(Self { whole: Arc::clone(&self.whole), range })
    }
}

impl From<Buffer> for FileBytes {
    fn from(bytes: Buffer) -> Self {
        let range = 0..bytes.len();
        Self { whole: Arc::new(Storage::Held(bytes)), range }
    }
}

impl From<Vec<u8>> for FileBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer::from(bytes).into()
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.whole.bytes()[self.range.clone()]
    }
}
