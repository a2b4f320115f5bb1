//! One tensor becomes one file, or a further name of the file of one that is the same.

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

/// Files: for the owner, and to be read by the group.
const FILE_MODE: u32 = 0o640;
/// zstd's level: the fastest that is not a compromise of its own.
const ZSTD_LEVEL: i32 = 3;
/// A smaller tensor is written as fast as a file is read, and takes little.
const SMALLEST_LINKED: usize = 64 << 10;
/// What is read of a file at a time: it stays in a core's own cache.
const CHUNK: usize = 128 << 10;
/// What is written of a tensor at a time before it is summed: so large that the file system gives it large folios, so small
/// that most of it is still in a cache.
const WRITTEN_AT_ONCE: usize = 1 << 20;

/// How files are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    pub(crate) format: TensorFormat,
    pub(crate) compress: bool,
    /// Whether tensors that are the same share a file.
    pub(crate) shares: bool,
    /// Whether a file is whole before the tensor's owner goes on.
    pub(crate) durable: bool,
}

/// What tells tensors apart at a glance. Where it is equal the bytes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Content {
    /// Of the bytes.
    pub(crate) crc: u32,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Shape,
}

/// A file that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenFile {
    /// Bytes it takes on the disk; 0 of a further name.
    pub(crate) size: u64,
    /// Bytes of the tensor that another's file has already; 0 of a file of its own.
    pub(crate) shared: u64,
}

/// A tensor's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bytes<'b> {
    /// Nobody else has them.
    Copied(&'b [u8]),
    /// The host's: another thread of it, or a device, may write to them meanwhile.
    Lent(&'b [u8]),
}

/// Writes into one directory and follows no link. Shared by threads; no two of them write equal contents at a time.
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

    /// Whether files are compressed: that takes longer than writing them.
    pub(crate) fn compresses(&self) -> bool {
        self.writing.compress
    }

    /// Whether a file is whole before the tensor's owner goes on.
    pub(crate) fn is_durable(&self) -> bool {
        self.writing.durable
    }

    /// Whether tensors of so many bytes that are the same share a file.
    pub(crate) fn shares(&self, size: usize) -> bool {
        self.writing.shares && size >= SMALLEST_LINKED
    }

    /// Gives the file of this name, which says the same, a further name. `None`: it cannot be done.
    pub(crate) fn add_name(&self, file: &str, name: &str) -> Option<()> {
        linkat(&self.directory, file, &self.directory, name, AtFlags::empty()).ok()
    }

    /// Makes a file that appears whole. `temporary` is a name that no other file has. `None`, and no file: the bytes are not what
    /// `content` says, somebody changed them.
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
            // From now on this one: the former has too many names, was changed by somebody, or is another tensor after all.
            Ok(Some(_)) if is_shared => drop(self.files.lock().insert(content, name.into())),
            Ok(Some(_)) => (),
            Ok(None) | Err(_) => {
                let _gone = unlinkat(&self.directory, temporary, AtFlags::empty()).is_ok();
            }
        }
        Ok(written?.map(|size| WrittenFile { size, shared: 0 }))
    }

    /// Gives the file that says the same a further name. `None`: there is none, or the file system has no such names.
    fn link(&self, name: &str, content: Content, tensor: TensorRef<'_>) -> Option<()> {
        let other = self.files.lock().get(&content).cloned()?;
        // Somebody may have put a pipe in its place, whose opening would wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.directory, &*other, flags, Mode::empty()).ok()?);
        let is_same = if self.writing.compress {
            self.is_file_of(tensor, content.crc, zstd::Decoder::new(file).ok()?)
        } else {
            self.is_file_of(tensor, content.crc, file)
        };
        is_same.then(|| self.add_name(&other, name)).flatten()
    }

    /// Whether a file says what would be written, byte for byte.
    fn is_file_of(&self, tensor: TensorRef<'_>, crc: u32, file: impl Read) -> bool {
        let mut comparison = BufWriter::new(Comparison { file, chunk: vec![0; CHUNK] });
        let is_equal = self.encode(tensor, crc, &mut comparison).is_ok() && comparison.flush().is_ok();
        let (mut comparison, _rest) = comparison.into_parts();
        is_equal && comparison.is_at_end()
    }

    /// The size of the file. `None`: the bytes are lent, and not what they were when their sum was taken.
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
            // An archive whose sum is not that of its bytes could not be read.
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

/// Takes what would be written, and holds it against what a file says. An error: they differ.
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

/// Sums the bytes that were lent while they pass: after each piece was written, and still lies in the cache. What is copied
/// on its way here is not in the sum, which then is not the right one.
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
        // A piece that began elsewhere in the file would be given small folios up to the next multiple.
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

/// Counts the bytes that pass.
struct Counted<W> {
    out: W,
    count: u64,
}

impl<W> Counted<W> {
    /// How many bytes are missing to a whole number of pieces.
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
