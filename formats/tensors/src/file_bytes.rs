//! A file's bytes: read, or mapped if there are many.

use std::fs::File;
use std::io::Read as _;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::buffer::Buffer;
use super::error::{FormatError, TensorFileError, part};

/// From this size on a file is mapped: below, a mapping's page faults cost more than the copy.
const MAPPED_FROM: u64 = 1 << 20;

/// A file's bytes, or a part of them. Cheap to clone; the file stays mapped while there is a clone.
///
/// A mapped file that is cut short while it is mapped ends the process with SIGBUS when its lost part is read.
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
    /// It cannot be opened or read, or is no regular file.
    pub fn open(path: &Path) -> Result<Self, TensorFileError> {
        let failed = |source| TensorFileError::Read { path: path.to_path_buf(), source };
        // Asked before opening: a pipe would wait for its other end.
        if !path.metadata().map_err(failed)?.is_file() {
            return Err(TensorFileError::NotAFile { path: path.to_path_buf() });
        }
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length < MAPPED_FROM {
            let mut bytes = Vec::new();
            // One that grows meanwhile is read as it was.
            file.by_ref().take(length).read_to_end(&mut bytes).map_err(failed)?;
            return Ok(bytes.into());
        }
        Self::map(&file).map_err(failed)
    }

    #[expect(unsafe_code, reason = "a mapping is memory that other processes may change")]
    fn map(file: &File) -> std::io::Result<Self> {
        // SAFETY: the mapping is read-only and lives as long as its `Arc`. Its bytes are plain numbers: every pattern is
        // valid. Nothing is concluded from a byte and then assumed of it later: what must be valid (UTF-8) is copied
        // first and checked in the copy. That no other process writes to the file meanwhile cannot be had by any lock;
        // such a write changes numbers that are read, or ends the process (see the type).
        let map = unsafe { Mmap::map(file)? };
        let range = 0..map.len();
        Ok(Self { whole: Arc::new(Storage::Mapped(map)), range })
    }

    /// The length of the file these are bytes of.
    pub fn file_length(&self) -> u64 {
        self.whole.bytes().len() as u64
    }

    /// The memory that they are in; `None` if others share it, or a file is mapped.
    pub fn into_buffer(self) -> Option<Buffer> {
        match Arc::into_inner(self.whole)? {
            Storage::Held(bytes) => Some(bytes),
            Storage::Mapped(_) => None,
        }
    }

    /// A part of these bytes, which shares them.
    ///
    /// # Errors
    /// The part does not lie within.
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
