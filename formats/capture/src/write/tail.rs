//! The growing end of a file: memory where a store cannot fail, system calls elsewhere.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{Ordering, fence};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// The file system whose pages are memory and nothing else. On any other a store into a mapping may ask something of a disk,
/// and where that fails it ends the process: there a call that can fail is made instead, as for the journal.
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// Reserved at first, and at a time when much is written.
const SMALLEST: u64 = 64 << 10;
const LARGEST: u64 = 4 << 20;

/// Appends to a file. What was appended is the operating system's when the call returns, whatever becomes of the process.
///
/// Where the file system allows it, the file's end is a mapping: blocks are reserved and pages made before anything is
/// stored, so that a full disk is an error and no signal. The file is then longer than what is in it; the rest is zeros.
#[derive(Debug)]
pub(super) struct Tail {
    file: File,
    /// Bytes appended.
    length: u64,
    window: Option<Window>,
    /// Bytes to reserve next; `None`: by calls.
    next: Option<u64>,
}

/// A part of the file as memory.
#[derive(Debug)]
struct Window {
    map: MmapRaw,
    /// Where it begins in the file.
    from: u64,
}

impl Window {
    fn end(&self) -> u64 {
        self.from + self.map.len() as u64
    }
}

impl Tail {
    /// Of an empty file. `may_map`: memory is tried where the file system is memory.
    pub(super) fn new(file: File, may_map: bool) -> Self {
        let is_memory = || rustix::fs::fstatfs(&file).is_ok_and(|stat| stat.f_type == TMPFS_MAGIC);
        let next = (may_map && is_memory()).then_some(SMALLEST);
        Self { file, length: 0, window: None, next }
    }

    /// Bytes appended.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Appends. After an error nothing of these bytes is there, and nothing more may be appended.
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

    /// Cuts the file behind what was appended: gives back what was reserved and not used, and what is left of a piece that
    /// failed.
    pub(super) fn trim(&mut self) -> io::Result<()> {
        self.window = None;
        self.file.set_len(self.length)
    }

    /// Moves the window so that it reaches `end`. By calls from now on where that cannot be.
    fn advance(&mut self, end: u64) -> io::Result<()> {
        self.window = None;
        let (from, needed) = (self.length, end - self.length);
        let wanted = self.next.unwrap_or(SMALLEST).max(needed);
        let reserved = match reserve(&self.file, from, wanted) {
            // Little is left: as much as these bytes need.
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

/// The range as memory, its pages made: a page that cannot be is an error here, and would be the process's end later.
/// A kernel that cannot make them in advance (before 5.14) refuses.
fn mapped(file: &File, from: u64, size: u64) -> io::Result<MmapRaw> {
    let size = usize::try_from(size).map_err(io::Error::other)?;
    let map = MmapOptions::new().offset(from).len(size).map_raw(file)?;
    map.advise(Advice::PopulateWrite)?;
    Ok(map)
}

#[expect(unsafe_code, reason = "a store into a mapping that others may see goes through a raw pointer")]
fn store(window: &Window, at: u64, bytes: &[u8]) {
    let place = (at - window.from) as usize;
    // The compiler may not move this store before the last one; the processor keeps its own order for a kill.
    fence(Ordering::SeqCst);
    // SAFETY: `append` has seen to it that the window reaches from before `at` to behind the last byte, and it is as long
    // as its mapping, which lives as long as `window`. `bytes` is memory of this process and no mapping of the file. No
    // reference to the mapping is ever made; `append` has the file's end for itself. The range's blocks are reserved.
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
