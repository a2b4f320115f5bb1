//! Disks that have no room.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use trainmon_dump::journal::{Journal, JournalError};

use super::support::{BOTH, Desk, assert_genuine, batch, config, names, skip, spec};

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
        let desk = Desk::new();
        let Some(disk) = RamDisk::mount(desk.directory(), "size=512k") else {
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
        std::fs::copy(&path, desk.path()).unwrap();
        assert_eq!(assert_genuine(&desk.recovered(), 30).last(), Some(&299));
    }
}

#[test]
fn a_place_that_cannot_be_written_is_an_error() {
    let desk = Desk::new();
    std::fs::write(desk.directory().join("file"), "").unwrap();
    let config = config();
    let path = desk.directory().join("file/journal_rank0.tmj");
    let error = Journal::create(&path, &spec(&config, 1 << 20, BOTH[0])).unwrap_err();
    assert!(matches!(&error, JournalError::Create { .. }), "{error}");
    assert_eq!(error.hint(), "make the directory writable, or name another in `journal.dir`");
}
