//! Output that appears complete or not at all and never replaces existing files.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// The name prefix of unfinished output, which is created beside its final place.
const UNFINISHED: &str = ".trainmon-unfinished-";

/// A directory under construction beside its final place; removed unless it is moved there.
pub struct FreshDirectory {
    /// Contains the directory, so that the directory itself has the usual permissions.
    hidden: Unfinished,
    inside: PathBuf,
    place: PathBuf,
}

/// Why a new file or directory could not be created.
pub enum NotMade<E = io::Error> {
    /// The place is taken.
    Exists,
    /// It cannot be created.
    Failed(E),
}

/// Why a command has no output: [`NotMade`] with its path.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum OutputError {
    /// The output exists.
    #[error("`{}` already exists", path.display())]
    Exists { path: PathBuf },
    /// It cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl OutputError {
    /// A write error at a path.
    pub fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_path_buf(), source }
    }

    /// How to fix the error.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Exists { .. } => "pass another path to `--output`, or remove this one",
            Self::Write { .. } => "check that the disk has free space and that the parent directory is writable",
        }
    }
}

impl NotMade {
    /// Adds the path.
    pub fn at(self, path: &Path) -> OutputError {
        match self {
            Self::Exists => OutputError::Exists { path: path.to_path_buf() },
            Self::Failed(source) => OutputError::write(path, source),
        }
    }
}

/// Writes a new file; creates its directory if necessary.
///
/// # Errors
/// The file exists or cannot be written.
pub fn write_new<E: From<io::Error>>(
    place: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), E>,
) -> Result<(), NotMade<E>> {
    let failed = |error: io::Error| NotMade::Failed(error.into());
    let parent = parent_of(place);
    std::fs::create_dir_all(parent).map_err(failed)?;
    remove_leftovers(parent);
    let mut hidden = tempfile::Builder::new();
    #[cfg(unix)]
    hidden.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = hidden.prefix(UNFINISHED).tempfile_in(parent).map_err(failed)?;
    // The lock ends with the file. Without locks, leftovers remain.
    drop(file.as_file().try_lock());
    let mut out = BufWriter::new(file.as_file());
    write(&mut out).map_err(NotMade::Failed)?;
    out.flush().map_err(failed)?;
    drop(out);
    match file.persist_noclobber(place) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(NotMade::Exists),
        Err(error) => Err(failed(error.error)),
    }
}

/// A directory for unfinished output, removed when dropped. A killed process leaves it behind; the next process that
/// creates one there removes it.
pub struct Unfinished {
    directory: tempfile::TempDir,
    /// Locked while the directory is in use.
    _in_use: Option<File>,
}

impl Unfinished {
    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Moves `files`, given by their paths inside, to the same paths below another directory of the same file system:
    /// all of them or none. Returns the new paths.
    ///
    /// # Errors
    /// An I/O error, with the path at which it happened.
    pub fn put_in_place(&self, files: &[PathBuf], directory: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
        let mut placed: Vec<PathBuf> = Vec::with_capacity(files.len());
        for file in files {
            let place = directory.join(file);
            let put = std::fs::create_dir_all(parent_of(&place))
                .and_then(|()| std::fs::rename(self.path().join(file), &place));
            if let Err(error) = put {
                for file in placed {
                    drop(std::fs::remove_file(file));
                }
                return Err((place, error));
            }
            placed.push(place);
        }
        Ok(placed)
    }

    /// Removes the directory.
    ///
    /// # Errors
    /// An I/O error.
    pub fn close(self) -> io::Result<()> {
        self.directory.close()
    }
}

/// Creates a directory for unfinished output inside another.
///
/// # Errors
/// It cannot be created.
pub fn unfinished_in(directory: &Path) -> io::Result<Unfinished> {
    remove_leftovers(directory);
    let made = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(directory)?;
    let in_use = locked(made.path());
    Ok(Unfinished { directory: made, _in_use: in_use })
}

/// Locks a file or directory for this process; `None` if another process holds the lock or locks are not supported.
fn locked(path: &Path) -> Option<File> {
    File::open(path).ok().filter(|file| file.try_lock().is_ok())
}

/// Younger leftovers may belong to a process that has not locked them yet.
const LEFT: std::time::Duration = std::time::Duration::from_mins(1);

/// Removes unfinished output of killed processes. An entry that cannot be removed remains.
fn remove_leftovers(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(UNFINISHED));
        let age = || entry.metadata().and_then(|metadata| metadata.modified()).ok()?.elapsed().ok();
        if !is_ours || age().is_none_or(|age| age < LEFT) {
            continue;
        }
        let Some(_lock) = locked(&entry.path()) else { continue };
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed =
            if is_directory { std::fs::remove_dir_all(entry.path()) } else { std::fs::remove_file(entry.path()) };
        drop(removed);
    }
}

fn parent_of(place: &Path) -> &Path {
    place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl FreshDirectory {
    /// Creates one for `place`, which must not exist or must be an empty directory.
    ///
    /// # Errors
    /// See [`NotMade`].
    pub fn prepare(place: &Path) -> Result<Self, NotMade> {
        let is_free = match std::fs::read_dir(place) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if !is_free {
            return Err(NotMade::Exists);
        }
        let parent = parent_of(place);
        let make = || -> io::Result<(Unfinished, PathBuf)> {
            std::fs::create_dir_all(parent)?;
            let hidden = unfinished_in(parent)?;
            let inside = hidden.path().join("output");
            std::fs::create_dir(&inside)?;
            Ok((hidden, inside))
        };
        let (hidden, inside) = make().map_err(NotMade::Failed)?;
        Ok(Self { hidden, inside, place: place.to_path_buf() })
    }

    /// The path to write to until then.
    pub fn path(&self) -> &Path {
        &self.inside
    }

    /// Moves the directory to its final place.
    ///
    /// # Errors
    /// An I/O error.
    pub fn put_in_place(self) -> io::Result<()> {
        std::fs::rename(&self.inside, &self.place)?;
        self.hidden.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aged(path: &Path) -> io::Result<()> {
        File::open(path)?.set_modified(std::time::SystemTime::now() - 2 * LEFT)
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_another_works_at_is_not() -> io::Result<()> {
        let place = tempfile::tempdir()?;
        let [left, file, young] =
            ["left", "file", "young"].map(|name| place.path().join(format!("{UNFINISHED}{name}")));
        std::fs::create_dir_all(left.join("output"))?;
        std::fs::write(left.join("output/rows.csv"), "1")?;
        std::fs::write(&file, "1")?;
        std::fs::create_dir(&young)?;
        std::fs::write(place.path().join("other"), "1")?;
        let at_work = unfinished_in(place.path())?;
        for path in [&left, &file, at_work.path()] {
            aged(path)?;
        }
        aged(&place.path().join("other"))?;
        assert!(write_new::<io::Error>(&place.path().join("new"), |out| out.write_all(b"2")).is_ok());
        assert!(!left.exists() && !file.exists());
        assert!(young.exists() && at_work.path().exists() && place.path().join("other").exists());
        let path = at_work.path().to_path_buf();
        drop(at_work);
        assert!(!path.exists());
        Ok(())
    }
}
