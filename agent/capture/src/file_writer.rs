//! Writes a tensor to a file, or gives the file of an equal tensor a further name.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, linkat, openat, renameat, unlinkat};
use trainmon_core::config::TensorFormat;
use trainmon_core::{Dtype, Shape};
use trainmon_tensor_files::TensorRef;
use trainmon_tensor_files::write::{WriteError, write_npy, write_pt_of_crc, write_safetensors};

/// The mode of files: written by the owner, read by the group.
const FILE_MODE: u32 = 0o640;
/// The compression level: zstd's default.
const ZSTD_LEVEL: i32 = 3;
/// The size in bytes from which equal tensors share a file. Smaller ones are written as fast as a file is read.
const SMALLEST_LINKED: usize = 64 << 10;
/// The number of bytes read from a file at a time: they fit into a core's own cache.
const CHUNK: usize = 128 << 10;
/// The number of bytes of a tensor that are written before they are summed: large enough for the file system to use large
/// folios, small enough for most of them to stay in a cache.
const WRITTEN_AT_ONCE: usize = 1 << 20;

/// The options for writing files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    pub(crate) format: TensorFormat,
    pub(crate) compress: bool,
    /// Whether equal tensors share a file.
    pub(crate) shares: bool,
    /// Whether a file must be complete before the training continues.
    pub(crate) durable: bool,
}

/// The key that distinguishes tensors. If two keys are equal, the bytes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Content {
    /// The CRC-32 of the bytes.
    pub(crate) crc: u32,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Shape,
}

/// The sizes of a complete file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenFile {
    /// The bytes on the disk; 0 for a further name.
    pub(crate) size: u64,
    /// The tensor's bytes that another tensor's file already has; 0 for a separate file.
    pub(crate) shared: u64,
}

/// A tensor's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bytes<'b> {
    /// A private copy.
    Copied(&'b [u8]),
    /// The host's memory: another thread or a device may write to it meanwhile.
    Lent(&'b [u8]),
}

/// Writes into one directory and follows no links. Threads share it; no two of them write equal contents at the same time.
pub(crate) struct FileWriter {
    writing: Writing,
    directory: OwnedFd,
    /// The file of each content.
    files: Mutex<HashMap<Content, Box<str>>>,
}

impl FileWriter {
    pub(crate) fn new(directory: OwnedFd, writing: Writing) -> Self {
        Self { writing, directory, files: Mutex::new(HashMap::new()) }
    }

    /// Whether files are compressed, which takes longer than writing them.
    pub(crate) fn compresses(&self) -> bool {
        self.writing.compress
    }

    /// Whether a file must be complete before the training continues.
    pub(crate) fn is_durable(&self) -> bool {
        self.writing.durable
    }

    /// Whether equal tensors of `size` bytes share a file.
    pub(crate) fn shares(&self, size: usize) -> bool {
        self.writing.shares && size >= SMALLEST_LINKED
    }

    /// Gives an existing file of equal content a further name. Returns `None` on failure.
    pub(crate) fn add_name(&self, file: &str, name: &str) -> Option<()> {
        linkat(&self.directory, file, &self.directory, name, AtFlags::empty()).ok()
    }

    /// Writes a file that appears complete under its name. `temporary` is a name that no other file has. Returns `None` and
    /// leaves no file if the bytes no longer match `content`, because they were changed meanwhile.
    pub(crate) fn write(
        &self,
        name: &str,
        content: Content,
        bytes: &Bytes<'_>,
        temporary: &str,
    ) -> Result<Option<WrittenFile>, WriteError> {
        let (bytes, lent) = match *bytes {
            Bytes::Copied(bytes) => (bytes, None),
            Bytes::Lent(bytes) => (bytes, Some(bytes)),
        };
        let tensor = TensorRef::new(content.dtype, content.shape, bytes)
            .map_err(|error| WriteError::Write(io::Error::other(error.to_string())))?;
        let is_shared = self.shares(bytes.len());
        if is_shared && self.link(name, content, tensor).is_some() {
            return Ok(Some(WrittenFile { size: 0, shared: bytes.len() as u64 }));
        }
        let written = self.write_beside(temporary, tensor, content.crc, lent).and_then(|size| {
            let Some(size) = size else { return Ok(None) };
            renameat(&self.directory, temporary, &self.directory, name).map_err(io::Error::from)?;
            Ok(Some(size))
        });
        match &written {
            // Link to this file from now on: the previous one has too many names, was changed, or holds another tensor.
            Ok(Some(_)) if is_shared => drop(self.files.lock().insert(content, name.into())),
            Ok(Some(_)) => (),
            Ok(None) | Err(_) => {
                let _gone = unlinkat(&self.directory, temporary, AtFlags::empty()).is_ok();
            }
        }
        Ok(written?.map(|size| WrittenFile { size, shared: 0 }))
    }

    /// Gives the file of an equal tensor a further name. Returns `None` if there is none or the file system has no links.
    fn link(&self, name: &str, content: Content, tensor: TensorRef<'_>) -> Option<()> {
        let other = self.files.lock().get(&content).cloned()?;
        // The file may have been replaced by a pipe: without NONBLOCK, opening it would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.directory, &*other, flags, Mode::empty()).ok()?);
        let is_same = if self.writing.compress {
            self.is_file_of(tensor, content.crc, zstd::Decoder::new(file).ok()?)
        } else {
            self.is_file_of(tensor, content.crc, file)
        };
        is_same.then(|| self.add_name(&other, name)).flatten()
    }

    /// Whether a file equals the one that would be written, byte for byte.
    fn is_file_of(&self, tensor: TensorRef<'_>, crc: u32, file: impl Read) -> bool {
        let mut comparison = BufWriter::new(Comparison { file, chunk: vec![0; CHUNK] });
        let is_equal = self.encode(tensor, crc, &mut comparison).is_ok() && comparison.flush().is_ok();
        let (mut comparison, _rest) = comparison.into_parts();
        is_equal && comparison.is_at_end()
    }

    /// Writes the temporary file and returns its size. Returns `None` if the bytes are lent and changed since they were summed.
    fn write_beside(
        &self,
        temporary: &str,
        tensor: TensorRef<'_>,
        crc: u32,
        lent: Option<&[u8]>,
    ) -> Result<Option<u64>, WriteError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(&self.directory, temporary, flags, Mode::from_raw_mode(FILE_MODE)).map_err(io::Error::from)?;
        let mut out = Counted { out: File::from(file), count: 0 };
        if self.writing.compress {
            let mut encoder = zstd::Encoder::new(&mut out, ZSTD_LEVEL)?;
            self.encode(tensor, crc, &mut encoder)?;
            encoder.finish()?;
        } else if let Some(lent) = lent {
            let mut summed = Summed { out: &mut out, lent, sum: crc32fast::Hasher::new() };
            self.encode_buffered(tensor, crc, &mut summed)?;
            // An archive with a wrong checksum would be unreadable.
            if summed.sum.finalize() != crc {
                return Ok(None);
            }
        } else {
            self.encode_buffered(tensor, crc, &mut out)?;
        }
        Ok(Some(out.count))
    }

    fn encode_buffered(&self, tensor: TensorRef<'_>, crc: u32, out: &mut impl Write) -> Result<(), WriteError> {
        let mut buffered = BufWriter::new(out);
        let encoded = self.encode(tensor, crc, &mut buffered).and_then(|()| Ok(buffered.flush()?));
        let (_out, _rest) = buffered.into_parts();
        encoded
    }

    fn encode(&self, tensor: TensorRef<'_>, crc: u32, out: &mut impl Write) -> Result<(), WriteError> {
        match self.writing.format {
            TensorFormat::Pt => write_pt_of_crc(tensor, Some(crc), out),
            TensorFormat::Npy => write_npy(tensor, out),
            TensorFormat::Safetensors => write_safetensors(&[("tensor", tensor)], out),
        }
    }
}

/// A writer that compares the bytes with a file instead of storing them. Returns an error if they differ.
struct Comparison<R> {
    file: R,
    chunk: Vec<u8>,
}

impl<R: Read> Comparison<R> {
    fn is_at_end(&mut self) -> bool {
        matches!(self.file.read(&mut self.chunk[..1]), Ok(0))
    }
}

impl<R: Read> Write for Comparison<R> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.chunk.len());
        let chunk = &mut self.chunk[..count];
        self.file.read_exact(chunk)?;
        if *chunk == bytes[..count] { Ok(count) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sums lent bytes as they are written, after each piece, while it is still in the cache. Bytes that were copied before they
/// arrive here are not summed, so the checksum then does not match.
struct Summed<'l, 'o, W> {
    out: &'o mut Counted<W>,
    lent: &'l [u8],
    sum: crc32fast::Hasher,
}

impl<W: Write> Write for Summed<'_, '_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.lent.as_ptr_range().contains(&bytes.as_ptr()) {
            return self.out.write(bytes);
        }
        // A piece that does not start at a multiple in the file would get small folios up to the next multiple.
        let (first, others) = bytes.split_at(self.out.up_to_multiple().min(bytes.len()));
        for piece in std::iter::once(first).chain(others.chunks(WRITTEN_AT_ONCE)) {
            self.out.write_all(piece)?;
            self.sum.update(piece);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Counts the bytes that are written.
struct Counted<W> {
    out: W,
    count: u64,
}

impl<W> Counted<W> {
    /// The number of bytes up to the next multiple of the piece size.
    fn up_to_multiple(&self) -> usize {
        let piece = WRITTEN_AT_ONCE as u64;
        usize::try_from(piece - self.count % piece).unwrap_or(WRITTEN_AT_ONCE)
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.count += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where each write ended in the file.
    #[derive(Default)]
    struct Ends(Vec<usize>);

    impl Write for Ends {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(self.0.last().unwrap_or(&0) + bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn pieces_of_a_lent_tensor_end_at_multiples_in_the_file_and_are_summed() {
        let lent = vec![7; 2 * WRITTEN_AT_ONCE];
        for head in [0, 500] {
            let mut out = Counted { out: Ends::default(), count: 0 };
            let mut summed = Summed { out: &mut out, lent: &lent, sum: crc32fast::Hasher::new() };
            summed.write_all(&vec![0; head]).expect("written");
            summed.write_all(&lent).expect("written");
            assert_eq!(summed.sum.finalize(), crc32fast::hash(&lent), "{head}");
            out.out.0.retain(|&end| end > head);
            let rest = (head > 0).then_some(head + lent.len());
            let expected: Vec<usize> = [WRITTEN_AT_ONCE, 2 * WRITTEN_AT_ONCE].into_iter().chain(rest).collect();
            assert_eq!(out.out.0, expected, "{head}");
        }
    }
}
