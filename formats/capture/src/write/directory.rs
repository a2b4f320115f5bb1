//! Creates a rank's directory and accesses its content without following symbolic links.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, mkdirat, openat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::super::keys::file;
use super::error::WriteError;

/// The mode of directories: the owner writes, the group reads.
const DIRECTORY_MODE: u32 = 0o750;
/// The mode of files: the owner writes, the group reads.
const FILE_MODE: u32 = 0o640;
/// The largest number under which a used directory is set aside.
const MOST_SET_ASIDE: u32 = 10_000;

/// The owner of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankName {
    /// A rank.
    Rank(u64),
    /// A process with an unknown rank.
    Process(u32),
}

impl fmt::Display for RankName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(rank) => write!(to, "rank{rank}"),
            Self::Process(process) => write!(to, "proc{process}"),
        }
    }
}

/// An open rank directory, which may be renamed meanwhile.
#[derive(Debug)]
pub struct RankDirectory {
    /// The directory of the step.
    step: OwnedFd,
    step_path: PathBuf,
    name: String,
    rank: OwnedFd,
}

/// A new directory, and the new path of the one it replaced.
#[derive(Debug)]
pub struct Opened {
    /// The directory.
    pub directory: RankDirectory,
    /// The directory of another run that was in its place.
    pub set_aside: Option<PathBuf>,
}

impl RankDirectory {
    /// Creates `<root>/step<step>/<rank>`. A directory that another run has used is renamed (`rank0.earlier-1`), so
    /// that runs never mix; readers do not treat it as a rank.
    ///
    /// The root itself may contain symbolic links, because the user named it. Below it, no link is followed.
    ///
    /// # Errors
    /// [`WriteError::InUse`] if a running process captures there, a link in the path, or an I/O error.
    pub fn create(root: &Path, step: u64, rank: RankName) -> Result<Opened, WriteError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source: io::Error| WriteError::Write { path, source }
        };
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(root).map_err(failed(root))?;
        let root_file =
            OpenOptions::new().read(true).custom_flags(libc_directory()).open(root).map_err(failed(root))?;
        let root_path = std::path::absolute(root).map_err(failed(root))?;
        let (step_name, name) = (format!("step{step}"), rank.to_string());
        let step_path = root_path.join(&step_name);
        let step = own_directory(&root_file.into(), &step_name, &step_path)?;
        let rank_path = step_path.join(&name);
        let rank = own_directory(&step, &name, &rank_path)?;
        let opened = Self { step, step_path, name, rank };
        if opened.is_unused()? {
            return Ok(Opened { directory: opened, set_aside: None });
        }
        opened.refuse_if_in_use()?;
        let aside = set_aside(&opened.step, &opened.name, &opened.step_path)?;
        let rank = own_directory(&opened.step, &opened.name, &rank_path)?;
        Ok(Opened { directory: Self { rank, ..opened }, set_aside: Some(aside) })
    }

    /// Opens an existing rank directory, to create its documents from its record file.
    ///
    /// # Errors
    /// The path is not a directory, or an I/O error.
    pub fn open(path: &Path) -> Result<Self, WriteError> {
        let absolute = path.canonicalize().map_err(|source| WriteError::Read { path: path.to_path_buf(), source })?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(WriteError::NotADirectory { path: path.to_path_buf() });
        };
        let read = |source| WriteError::Read { path: path.to_path_buf(), source };
        let step = OpenOptions::new().read(true).custom_flags(libc_directory()).open(parent).map_err(read)?;
        let name = name.to_string_lossy().into_owned();
        let step = OwnedFd::from(step);
        let rank = open_directory(&step, &name, path)?;
        Ok(Self { step, step_path: parent.to_path_buf(), name, rank })
    }

    /// The path of the directory.
    pub fn path(&self) -> PathBuf {
        self.step_path.join(&self.name)
    }

    /// Renames the directory after the rank became known. Returns `false` without renaming if the name is taken.
    ///
    /// # Errors
    /// An I/O error.
    pub fn rename(&mut self, rank: RankName) -> Result<bool, WriteError> {
        let name = rank.to_string();
        if name == self.name {
            return Ok(true);
        }
        match renameat_with(&self.step, &*self.name, &self.step, &*name, RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.name = name;
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            Err(source) => Err(WriteError::Write { path: self.step_path.join(name), source: source.into() }),
        }
    }

    /// Creates the directory of tensor files and opens it.
    ///
    /// # Errors
    /// A link is in its place, or an I/O error.
    pub fn tensors(&self) -> Result<OwnedFd, WriteError> {
        own_directory(&self.rank, file::TENSORS, &self.path().join(file::TENSORS))
    }

    /// The path of the tensor files, if they exist.
    pub(super) fn tensors_path(&self) -> Option<PathBuf> {
        let path = self.path().join(file::TENSORS);
        open_directory(&self.rank, file::TENSORS, &path).is_ok().then_some(path)
    }

    /// Opens a file in the directory.
    pub(super) fn read(&self, name: &str) -> Result<File, WriteError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = openat(&self.rank, name, flags, Mode::empty());
        opened
            .map(File::from)
            .map_err(|source| WriteError::Read { path: self.path().join(name), source: source.into() })
    }

    /// Creates a new file for reading and writing.
    pub(super) fn create_new(&self, name: &str) -> Result<File, WriteError> {
        create_new(&self.rank, name).map_err(|source| WriteError::Write { path: self.path().join(name), source })
    }

    /// Appends to `dump_error_info.log`.
    ///
    /// # Errors
    /// An I/O error.
    pub fn append_to_error_log(&self, text: &[u8]) -> Result<(), WriteError> {
        let failed = |source| WriteError::Write { path: self.path().join(file::ERRORS), source };
        self.append_to(file::ERRORS)?.write_all(text).map_err(failed)
    }

    /// Removes the record file after its documents were created.
    ///
    /// # Errors
    /// An I/O error.
    pub fn remove_records(&self) -> Result<(), WriteError> {
        self.remove(file::RECORDS)
    }

    /// Removes tensor files that were being written when their process died.
    pub(super) fn remove_unfinished_tensors(&self) -> Result<(), WriteError> {
        let path = self.path().join(file::TENSORS);
        let Ok(directory) = open_directory(&self.rank, file::TENSORS, &path) else { return Ok(()) };
        let failed = |source: Errno| WriteError::Write { path: path.clone(), source: source.into() };
        for entry in Dir::read_from(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name.starts_with(b".") && name.ends_with(b".tmp") {
                unlinkat(&directory, entry.file_name(), AtFlags::empty()).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn append_to(&self, name: &str) -> Result<File, WriteError> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.rank, name, flags, Mode::from_raw_mode(FILE_MODE));
        opened
            .map(File::from)
            .map_err(|source| WriteError::Write { path: self.path().join(name), source: source.into() })
    }

    /// Replaces a file atomically: `write` fills a temporary file, which then takes its place.
    pub(super) fn replace(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let temporary = format!(".{name}.tmp");
        let failed = |source: Errno| WriteError::Write { path: self.path().join(name), source: source.into() };
        self.remove(&temporary)?;
        let mut file = self.create_new(&temporary)?;
        let written =
            write(&mut file).and_then(|()| renameat(&self.rank, &*temporary, &self.rank, name).map_err(failed));
        if written.is_err() {
            // The temporary file is useless; a failure to remove it does no harm.
            let _gone = self.remove(&temporary).is_ok();
        }
        written
    }

    /// Removes a file, if it exists.
    pub(super) fn remove(&self, name: &str) -> Result<(), WriteError> {
        match unlinkat(&self.rank, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(source) => Err(WriteError::Write { path: self.path().join(name), source: source.into() }),
        }
    }

    fn is_unused(&self) -> Result<bool, WriteError> {
        let failed = |source: Errno| WriteError::Read { path: self.path(), source: source.into() };
        for entry in Dir::read_from(&self.rank).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn refuse_if_in_use(&self) -> Result<(), WriteError> {
        match self.read(file::RECORDS).map(|records| records.try_lock()) {
            Ok(Err(TryLockError::WouldBlock)) => Err(WriteError::InUse { path: self.path() }),
            // No record file, or an unlocked one. On a file system without locks this is unknown: the directory is set
            // aside and kept.
            _ => Ok(()),
        }
    }
}

/// Creates a new file in an open directory without following links.
///
/// # Errors
/// The file exists, or an I/O error.
pub(super) fn create_new(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::from_raw_mode(FILE_MODE)).map(File::from)?)
}

fn libc_directory() -> i32 {
    (OFlags::DIRECTORY | OFlags::CLOEXEC).bits() as i32
}

fn own_directory(parent: &OwnedFd, name: &str, path: &Path) -> Result<OwnedFd, WriteError> {
    match mkdirat(parent, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
        Ok(()) | Err(Errno::EXIST) => open_directory(parent, name, path),
        Err(source) => Err(WriteError::Write { path: path.to_path_buf(), source: source.into() }),
    }
}

fn open_directory(parent: &OwnedFd, name: &str, path: &Path) -> Result<OwnedFd, WriteError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty()).map_err(|source| match source {
        Errno::NOTDIR | Errno::LOOP => WriteError::NotADirectory { path: path.to_path_buf() },
        source => WriteError::Write { path: path.to_path_buf(), source: source.into() },
    })
}

fn set_aside(step: &OwnedFd, name: &str, step_path: &Path) -> Result<PathBuf, WriteError> {
    let mut refused = Errno::EXIST;
    for number in 1..=MOST_SET_ASIDE {
        let aside = format!("{name}.earlier-{number}");
        match renameat_with(step, name, step, &*aside, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(step_path.join(aside)),
            Err(Errno::EXIST) => {}
            Err(source) => {
                refused = source;
                break;
            }
        }
    }
    Err(WriteError::Write { path: step_path.join(name), source: refused.into() })
}
