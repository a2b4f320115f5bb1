//! Appends to a file: through memory where a store cannot fail, otherwise by system calls.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{Ordering, fence};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// The only file system whose pages are just memory. On any other, a store into a mapping may need the disk, and its
/// failure ends the process. There, a system call that can return an error is used instead, as for the journal.
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// The size of the first reservation, and its growth while much is written.
const SMALLEST: u64 = 64 << 10;
const LARGEST: u64 = 4 << 20;

/// Appends to a file. Appended bytes survive the end of the process once the call returns.
///
/// Where the file system allows it, the file's end is a mapping: blocks are reserved and pages allocated before
/// anything is stored, so that a full disk is an error and not a signal. The file is then longer than its content; the
/// rest is zeros.
#[derive(Debug)]
pub(super) struct Tail {
    file: File,
    /// The number of bytes appended.
    length: u64,
    window: Option<Window>,
    /// The size of the next reservation; `None` with system calls.
    next: Option<u64>,
}

/// A mapped part of the file.
#[derive(Debug)]
struct Window {
    map: MmapRaw,
    /// The position of the part in the file.
    from: u64,
}

impl Window {
    fn end(&self) -> u64 {
        self.from + self.map.len() as u64
    }
}

impl Tail {
    /// Starts with an empty file. `may_map`: use a mapping if the file system is memory.
    pub(super) fn new(file: File, may_map: bool) -> Self {
        let is_memory = || rustix::fs::fstatfs(&file).is_ok_and(|stat| stat.f_type == TMPFS_MAGIC);
        let next = (may_map && is_memory()).then_some(SMALLEST);
        Self { file, length: 0, window: None, next }
    }

    /// The number of bytes appended.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Appends bytes. After an error, none of these bytes are in the file, and nothing more may be appended.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = self.length + bytes.len() as u64;
        if self.next.is_some() && self.window.as_ref().is_none_or(|window| window.end() < end) {
            self.advance(end)?;
        }
        match &self.window {
            Some(window) => store(window, self.length, bytes),
            None => self.file.write_all_at(bytes, self.length)?,
        }
        self.length = end;
        Ok(())
    }

    /// Truncates the file to its content: removes reserved space and the rest of a failed write.
    pub(super) fn trim(&mut self) -> io::Result<()> {
        self.window = None;
        self.file.set_len(self.length)
    }

    /// Moves the window so that it reaches `end`. If that fails, uses system calls from now on.
    fn advance(&mut self, end: u64) -> io::Result<()> {
        self.window = None;
        let (from, needed) = (self.length, end - self.length);
        let wanted = self.next.unwrap_or(SMALLEST).max(needed);
        let reserved = match reserve(&self.file, from, wanted) {
            // Little space is left: reserve only what these bytes need.
            Err(Errno::NOSPC | Errno::DQUOT) => reserve(&self.file, from, needed).map(|()| needed),
            reserved => reserved.map(|()| wanted),
        };
        match reserved.map(|size| mapped(&self.file, from, size)) {
            Ok(Ok(map)) => {
                self.window = Some(Window { map, from });
                self.next = Some((2 * wanted).min(LARGEST));
            }
            Err(full @ (Errno::NOSPC | Errno::DQUOT)) => return Err(full.into()),
            Ok(Err(_)) | Err(_) => self.next = None,
        }
        Ok(())
    }
}

fn reserve(file: &File, from: u64, size: u64) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::empty(), from, size))
}

/// Maps the range and allocates its pages: a failure is an error here, and would end the process later. A kernel that
/// cannot allocate them in advance (before 5.14) returns an error.
fn mapped(file: &File, from: u64, size: u64) -> io::Result<MmapRaw> {
    let size = usize::try_from(size).map_err(io::Error::other)?;
    let map = MmapOptions::new().offset(from).len(size).map_raw(file)?;
    map.advise(Advice::PopulateWrite)?;
    Ok(map)
}

#[expect(unsafe_code, reason = "a store into a mapping that others may see goes through a raw pointer")]
fn store(window: &Window, at: u64, bytes: &[u8]) {
    let place = (at - window.from) as usize;
    // The compiler must not move this store before the previous one; the processor keeps its own order for a kill.
    fence(Ordering::SeqCst);
    // SAFETY: `append` ensured that the window covers the range from `at` to the last byte, and the window is as long
    // as its mapping, which lives as long as `window`. `bytes` is memory of this process and no mapping of the file. No
    // reference to the mapping is ever made; `append` has exclusive access to the file's end. The range's blocks are
    // reserved.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), window.map.as_mut_ptr().add(place), bytes.len()) };
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(file: &std::path::Path) -> Vec<u8> {
        std::fs::read(file).unwrap()
    }

    #[test]
    fn what_is_appended_in_any_pieces_is_there_at_once_and_the_rest_is_zeros() {
        for may_map in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("tail");
            let open = || File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            let mut tail = Tail::new(open(), may_map);
            let mut expected = Vec::new();
            for (number, size) in [1, 7, 4096, 60_000, 5000, 300_000, 0, 9_000_000, 3].into_iter().enumerate() {
                let piece = vec![number as u8 + 1; size];
                tail.append(&piece).unwrap();
                expected.extend(piece);
                let found = content(&path);
                assert_eq!(tail.length(), expected.len() as u64);
                assert!(found.starts_with(&expected), "piece {number}");
                assert!(found[expected.len()..].iter().all(|&byte| byte == 0), "piece {number}");
            }
            tail.trim().unwrap();
            assert_eq!(content(&path).len(), expected.len());
            tail.append(b"more").unwrap();
            expected.extend(b"more");
            assert!(content(&path).starts_with(&expected), "it goes on after it was trimmed");
        }
    }
}
