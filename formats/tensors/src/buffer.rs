//! Memory for the bytes of a tensor on their way to a file.

use std::collections::TryReserveError;
use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// The size from which on memory is mapped directly: whole pages, which the kernel zeroes when they are touched.
const MAPPED_FROM: usize = 128 << 10;

/// A buffer of fixed size for writing.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Heap(Vec<u8>),
    Pages(MmapMut),
}

impl Buffer {
    /// Allocates zeros. The zeros of a large buffer cost nothing before they are written. It uses small pages: with a
    /// full page cache, the kernel takes milliseconds to find a huge page, and as long to clear it.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn zeros(len: usize) -> io::Result<Self> {
        if len < MAPPED_FROM {
            let mut bytes = Vec::new();
            bytes
                .try_reserve_exact(len)
                .map_err(|error: TryReserveError| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
            bytes.resize(len, 0);
            return Ok(Self { memory: Memory::Heap(bytes), len });
        }
        let pages = MmapMut::map_anon(len)?;
        // For systems that use huge pages by default. A kernel without them returns an error, which is ignored.
        #[cfg(target_os = "linux")]
        drop(pages.advise(memmap2::Advice::NoHugePage));
        Ok(Self { memory: Memory::Pages(pages), len })
    }

    /// The capacity in bytes.
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Heap(bytes) => bytes.len(),
            Memory::Pages(pages) => pages.len(),
        }
    }

    /// Changes the length without changing the content; returns the buffer itself if its capacity is too small.
    ///
    /// # Errors
    /// The capacity is too small.
    pub fn with_len(mut self, len: usize) -> Result<Self, Self> {
        if len > self.capacity() {
            return Err(self);
        }
        self.len = len;
        Ok(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(bytes) => &bytes[..self.len],
            Memory::Pages(pages) => &pages[..self.len],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Heap(bytes) => &mut bytes[..self.len],
            Memory::Pages(pages) => &mut pages[..self.len],
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self { memory: Memory::Heap(bytes), len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_of_any_size_is_zeros_and_can_be_written() {
        for len in [0, 1, MAPPED_FROM - 1, MAPPED_FROM, 5 << 20] {
            let mut buffer = Buffer::zeros(len).unwrap();
            assert!(buffer.len() == len && buffer.iter().all(|&byte| byte == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|&byte| byte == 7) && buffer.capacity() >= len);
        }
    }

    #[test]
    fn a_buffer_serves_for_fewer_bytes_and_not_for_more() {
        let buffer = Buffer::zeros(MAPPED_FROM).unwrap().with_len(10).unwrap();
        assert_eq!((buffer.len(), buffer.capacity()), (10, MAPPED_FROM));
        let same = buffer.with_len(MAPPED_FROM).unwrap();
        assert!(same.with_len(MAPPED_FROM + 1).is_err_and(|refused| refused.capacity() == MAPPED_FROM));
    }

    #[test]
    fn more_memory_than_there_is_is_an_error() {
        assert!(Buffer::zeros(usize::MAX / 2).is_err());
    }
}
