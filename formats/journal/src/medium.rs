//! File access as memory, or by system calls where memory is not safe.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

use memmap2::MmapRaw;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::error::JournalError;

/// How a journal's bytes reach the operating system. Either way they survive the end of the process once a call
/// returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// Memory-mapped where no store can fail (tmpfs with all pages reserved), otherwise by system calls.
    #[default]
    Auto,
    /// Memory-mapped. On any file system except tmpfs, a full or failing disk then ends the process with SIGBUS.
    Mapped,
    /// By `pwrite`: a full or failing disk is an error.
    Calls,
}

/// The only file system that is memory itself: its reserved pages are neither written back nor copied on write, so a
/// store into the mapping cannot fail. On other file systems a store may need a new block, or a read from a failing
/// disk.
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// File systems on disks of this machine or in its memory: a write into the page cache waits for no server and no other
/// process. (`overlayfs` has its upper layer on such a file system; ext2 to ext4 share one number.)
const LOCAL_MAGICS: [i64; 11] = [
    TMPFS_MAGIC,
    0x8584_58F6, // ramfs
    0xEF53,      // ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0xF2F5_2010, // f2fs
    0x794C_7630, // overlayfs
    0x2FC1_2FC1, // zfs
    0xCA45_1A4E, // bcachefs
    0x3153_464A, // jfs
    0x5265_4973, // reiserfs
];
/// The size reserved per call: a call that signals keep interrupting releases its reservation.
const PIECE: u64 = 4 << 20;
/// The file mode: the config's names and the run's alerts are private to the user.
const OWNER_ONLY: u32 = 0o600;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// An open journal file of fixed size.
#[derive(Debug)]
pub(super) struct Medium {
    path: PathBuf,
    file: File,
    length: u64,
    map: Option<MmapRaw>,
    is_local: bool,
}

impl Medium {
    /// Creates a file and reserves its whole size, so that a full disk is an error now and not later. Removes the file
    /// on failure.
    pub(super) fn create(path: &Path, length: u64, storage: Storage) -> Result<Self, JournalError> {
        let create = |source| JournalError::Create { path: path.to_path_buf(), source };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(create)?;
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(OWNER_ONLY).open(path).map_err(create)?;
        // On a file system without locks, no reader can check for one either.
        drop(file.try_lock());
        let prepared = reserve(&file, length)
            .map_err(|source| JournalError::Reserve { path: path.to_path_buf(), bytes: length, source })
            .and_then(|reserved| map(&file, storage, reserved).map_err(create));
        let is_local = rustix::fs::fstatfs(&file).is_ok_and(|stat| LOCAL_MAGICS.contains(&stat.f_type));
        match prepared {
            Ok(map) => Ok(Self { path: path.to_path_buf(), file, length, map, is_local }),
            Err(error) => {
                // Only the first error matters.
                drop(std::fs::remove_file(path));
                Err(error)
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.map.is_some()
    }

    /// Whether the file is in this machine's memory or on its disks.
    pub(super) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Checks that the file exists with its full size: a store beyond a mapped file's end would kill the process.
    pub(super) fn check(&self) -> Result<(), JournalError> {
        let metadata = self.file.metadata().map_err(|source| self.failed(source))?;
        let found = metadata.len();
        if found < self.length {
            return Err(JournalError::Shrunk { path: self.path.clone(), expected: self.length, found });
        }
        // Writes into a deleted file would be lost.
        if metadata.nlink() == 0 { Err(JournalError::Deleted { path: self.path.clone() }) } else { Ok(()) }
    }

    /// Writes `bytes` at `offset`. After the process's end, a reader that finds this write also finds all earlier ones.
    ///
    /// Only one thread may write at a time: the caller holds the lock.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), JournalError> {
        match &self.map {
            Some(map) => self.store(map, offset, bytes),
            None => self.file.write_all_at(bytes, offset),
        }
        .map_err(|source| self.failed(source))
    }

    /// Reads into `bytes` from `offset`, by a system call even where the file is mapped: it may run concurrently with
    /// [`write`](Self::write) and then returns a mix of old and new bytes.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), JournalError> {
        self.file.read_exact_at(bytes, offset).map_err(|source| self.failed(source))
    }

    /// Waits until all previous writes are on the disk. Takes no lock: a concurrent write may or may not be on the
    /// disk.
    pub(super) fn flush(&self) -> Result<(), JournalError> {
        match &self.map {
            Some(map) => map.flush(),
            None => self.file.sync_data(),
        }
        .map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> JournalError {
        JournalError::Write { path: self.path.clone(), source }
    }

    /// The position in the mapping of a range's first byte.
    fn place(&self, offset: u64, length: usize) -> io::Result<usize> {
        let end = offset.checked_add(length as u64).filter(|&end| end <= self.length);
        let place = end.and_then(|_| usize::try_from(offset).ok());
        place.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    }

    #[expect(unsafe_code, reason = "a store into a mapping that others may see goes through a raw pointer")]
    fn store(&self, map: &MmapRaw, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let place = self.place(offset, bytes.len())?;
        // The compiler must not move this store before the previous one; the processor keeps its own order for a kill.
        fence(Ordering::SeqCst);
        // SAFETY: `place` checked that the range lies within the mapping, which lives as long as `map`. `bytes` is
        // memory of this process and no mapping of the file, so the two do not overlap. No reference to the mapping is
        // ever made, and this process's threads take turns (see the method's contract). The caller checked just before
        // that the file still has its size.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), map.as_mut_ptr().add(place), bytes.len()) };
        fence(Ordering::SeqCst);
        Ok(())
    }
}

/// How a file got its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserved {
    /// The blocks are reserved.
    Reserved,
    /// The blocks were written once: the next write may need another block.
    Written,
}

/// Gives the file its size, with all blocks.
fn reserve(file: &File, length: u64) -> io::Result<Reserved> {
    match in_pieces(length, |offset, bytes| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes)) {
        Ok(()) => Ok(Reserved::Reserved),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(file, length).map(|()| Reserved::Written),
        Err(error) => Err(error.into()),
    }
}

/// Calls `call` for each piece of the length, and again if a signal interrupts it.
fn in_pieces(length: u64, mut call: impl FnMut(u64, u64) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut offset = 0;
    while offset < length {
        let bytes = PIECE.min(length - offset);
        rustix::io::retry_on_intr(|| call(offset, bytes))?;
        offset += bytes;
    }
    Ok(())
}

/// Fills the file with zeros once, where the file system cannot reserve blocks.
fn fill(mut file: &File, length: u64) -> io::Result<()> {
    let mut left = length;
    while left > 0 {
        let part = left.min(ZEROS.len() as u64);
        file.write_all(&ZEROS[..part as usize])?;
        left -= part;
    }
    file.sync_data()
}

fn map(file: &File, storage: Storage, reserved: Reserved) -> io::Result<Option<MmapRaw>> {
    let is_mapped = match storage {
        Storage::Mapped => true,
        Storage::Calls => false,
        Storage::Auto => reserved == Reserved::Reserved && rustix::fs::fstatfs(file)?.f_type == TMPFS_MAGIC,
    };
    is_mapped.then(|| MmapRaw::map_raw(file)).transpose()
}

/// Whether some process has the journal at `path` open for writing, or this cannot be determined.
pub(super) fn is_in_use(path: &Path) -> io::Result<bool> {
    // NFS locks only files that are open for writing.
    match File::options().read(true).write(true).open(path)?.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_interrupts_costs_a_piece_another_call_and_nothing_else() {
        let mut calls = Vec::new();
        let outcome = in_pieces(2 * PIECE + 5, |offset, bytes| {
            calls.push((offset, bytes));
            if calls.len() % 2 == 1 { Err(Errno::INTR) } else { Ok(()) }
        });
        assert_eq!(outcome, Ok(()));
        let pieces = [(0, PIECE), (PIECE, PIECE), (2 * PIECE, 5)];
        assert_eq!(calls, pieces.iter().flat_map(|&piece| [piece, piece]).collect::<Vec<_>>());
        assert_eq!(in_pieces(1, |_, _| Err(Errno::NOSPC)), Err(Errno::NOSPC));
    }
}
