//! Disks that have no room.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use trainmon_core::Step;
use trainmon_journal::{Fault, Journal, JournalError, Storage};

use super::support::{BOTH, Workspace, assert_genuine, batch, config, names, skip, spec};

/// A mounted tmpfs; unmounted when dropped.
struct RamDisk(PathBuf);

impl RamDisk {
    fn mount(parent: &Path, options: &str) -> Option<Self> {
        let path = parent.join("disk");
        std::fs::create_dir(&path).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path).output().ok()?;
        mount.status.success().then_some(Self(path))
    }
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).stderr(Stdio::null()).status());
    }
}

#[test]
fn a_disk_without_room_is_an_error_at_once_and_nothing_is_left_on_it() {
    let test = "a_disk_without_room_is_an_error_at_once_and_nothing_is_left_on_it";
    for storage in BOTH {
        let workspace = Workspace::new();
        let Some(disk) = RamDisk::mount(workspace.directory(), "size=512k") else {
            return skip(test, "mounting a tmpfs is refused");
        };
        let config = config();
        let path = disk.0.join("run/journal_rank0.tmj");
        let error = Journal::create(&path, &spec(&config, 1 << 20, storage)).unwrap_err();
        assert!(matches!(&error, JournalError::Reserve { bytes: 1_048_576, .. }), "{error}");
        assert!(error.hint().starts_with("free space on that disk"), "{}", error.hint());
        assert!(!path.exists());
        // What fits is reserved: the disk may then be filled up, and every step still finds its place.
        let mut journal = Journal::create(&path, &spec(&config, 256 << 10, storage)).unwrap();
        let ballast = std::fs::write(disk.0.join("ballast"), vec![1; 512 << 10]);
        assert_eq!(ballast.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        for step in 0..300 {
            journal.append(&names(30), &batch(step, 30)).unwrap();
        }
        drop(journal);
        std::fs::copy(&path, workspace.path()).unwrap();
        assert_eq!(assert_genuine(&workspace.recovered(), 30).last(), Some(&299));
    }
}

#[test]
fn a_place_that_cannot_be_written_is_an_error() {
    let workspace = Workspace::new();
    std::fs::write(workspace.directory().join("file"), "").unwrap();
    let config = config();
    let path = workspace.directory().join("file/journal_rank0.tmj");
    let error = Journal::create(&path, &spec(&config, 1 << 20, BOTH[0])).unwrap_err();
    assert!(matches!(&error, JournalError::Create { .. }), "{error}");
    assert_eq!(error.hint(), "make the directory writable, or set `journal.dir` to another directory");
}

/// The header of a region in the file: where the ring of steps begins, and its length.
fn steps_region(path: &Path) -> (u64, u64) {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (word(88), word(96))
}

/// A disk that is full where nothing was reserved, or a copy-on-write one anywhere: here somebody gave the ring's blocks
/// back and filled the disk. A store into a mapping would end this process.
#[test]
fn a_write_that_finds_no_room_is_an_error_and_the_next_one_that_does_is_kept() {
    let test = "a_write_that_finds_no_room_is_an_error_and_the_next_one_that_does_is_kept";
    let workspace = Workspace::new();
    let Some(disk) = RamDisk::mount(workspace.directory(), "size=512k") else {
        return skip(test, "mounting a tmpfs is refused");
    };
    let config = config();
    let path = disk.0.join("journal_rank0.tmj");
    let mut journal = Journal::create(&path, &spec(&config, 256 << 10, Storage::Calls)).unwrap();
    assert!(!journal.is_mapped());
    journal.append(&names(30), &batch(0, 30)).unwrap();
    let (offset, length) = steps_region(&path);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    // The page of the first step stays.
    let after = offset + 8192;
    rustix::fs::fallocate(&file, hole, after, length - 8192).unwrap();
    let ballast = disk.0.join("ballast");
    assert!(std::fs::write(&ballast, vec![1; 512 << 10]).is_err());
    let mut failed = Vec::new();
    for step in 1..20 {
        if let Err(error) = journal.append(&names(30), &batch(step, 30)) {
            let JournalError::Write { source, .. } = &error else { panic!("{error}") };
            assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
            assert!(error.hint().starts_with("free space on that disk"), "{}", error.hint());
            failed.push(step);
        }
    }
    assert!(failed.len() > 5, "{failed:?}");
    std::fs::remove_file(&ballast).unwrap();
    journal.append(&names(30), &batch(20, 30)).unwrap();
    journal.close().unwrap();
    std::fs::copy(&path, workspace.path()).unwrap();
    let recovered = workspace.recovered();
    // They failed one after the other until there was room again.
    let [first, last] = [failed[0], failed[failed.len() - 1]].map(Step);
    assert_eq!(recovered.faults(), [Fault::NeverWritten { first, last }]);
    let kept: Vec<u64> = (0..=20).filter(|step| !failed.contains(step)).collect();
    assert_eq!(assert_genuine(&recovered, 30), kept);
}

#[test]
fn only_what_is_memory_itself_is_mapped() {
    let workspace = Workspace::new();
    let journal = workspace.journal(Storage::Auto);
    let file_system = rustix::fs::statfs(workspace.directory()).unwrap().f_type;
    assert_eq!(journal.is_mapped(), file_system == 0x0102_1994, "{file_system:x}");
    let Some(disk) = RamDisk::mount(workspace.directory(), "size=512k") else {
        return skip("only_what_is_memory_itself_is_mapped", "mounting a tmpfs is refused");
    };
    let config = config();
    let path = disk.0.join("journal_rank0.tmj");
    assert!(Journal::create(&path, &spec(&config, 256 << 10, Storage::Auto)).unwrap().is_mapped());
}
