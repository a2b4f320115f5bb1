//! Output that appears whole or not at all, and never in place of other.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// Unfinished output is called so, beside the place it will have.
const UNFINISHED: &str = ".trainmon-unfinished-";

/// A directory in the making beside its final place; removed unless it is put there.
pub struct FreshDirectory {
    /// Holds the other, so that that one has the usual permissions.
    hidden: tempfile::TempDir,
    inside: PathBuf,
    place: PathBuf,
}

/// Why there is no new file or directory.
pub enum NotMade<E = io::Error> {
    /// Something is there already.
    Exists,
    /// It cannot be made.
    Failed(E),
}

/// Why a command has no output: [`NotMade`] at a place.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Something is there already.
    #[error("`{}` exists already", path.display())]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// It cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl OutputError {
    /// Of writing there.
    pub fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_path_buf(), source }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Exists { .. } => "name another with --output, or remove this one",
            Self::Write { .. } => "see that the disk has room and the directory above the output can be written",
        }
    }
}

impl NotMade {
    /// With its place.
    pub fn at(self, path: &Path) -> OutputError {
        match self {
            Self::Exists => OutputError::Exists { path: path.to_path_buf() },
            Self::Failed(source) => OutputError::write(path, source),
        }
    }
}

/// Writes a new file, its directory made if there is none.
///
/// # Errors
/// There is a file already, or it cannot be written.
pub fn write_new<E: From<io::Error>>(
    place: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), E>,
) -> Result<(), NotMade<E>> {
    let failed = |error: io::Error| NotMade::Failed(error.into());
    let parent = parent_of(place);
    std::fs::create_dir_all(parent).map_err(failed)?;
    let mut hidden = tempfile::Builder::new();
    #[cfg(unix)]
    hidden.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = hidden.prefix(UNFINISHED).tempfile_in(parent).map_err(failed)?;
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

/// A directory inside another, for what is not finished; removed when dropped.
///
/// # Errors
/// It cannot be made.
pub fn unfinished_in(directory: &Path) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(directory)
}

fn parent_of(place: &Path) -> &Path {
    place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl FreshDirectory {
    /// Makes one for `place`, which must not exist or be an empty directory.
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
        let make = || -> io::Result<(tempfile::TempDir, PathBuf)> {
            std::fs::create_dir_all(parent)?;
            let hidden = unfinished_in(parent)?;
            let inside = hidden.path().join("output");
            std::fs::create_dir(&inside)?;
            Ok((hidden, inside))
        };
        let (hidden, inside) = make().map_err(NotMade::Failed)?;
        Ok(Self { hidden, inside, place: place.to_path_buf() })
    }

    /// Where to write meanwhile.
    pub fn path(&self) -> &Path {
        &self.inside
    }

    /// Gives it its final place.
    ///
    /// # Errors
    /// The system refuses.
    pub fn put_in_place(self) -> io::Result<()> {
        std::fs::rename(&self.inside, &self.place)?;
        self.hidden.close()
    }
}
