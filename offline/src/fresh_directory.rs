//! An output directory that appears whole or not at all.

use std::io;
use std::path::{Path, PathBuf};

/// A directory in the making beside its final place; removed unless it is put there.
pub(crate) struct FreshDirectory {
    /// Holds the other, so that that one has the usual permissions.
    hidden: tempfile::TempDir,
    inside: PathBuf,
    place: PathBuf,
}

/// Why there is none.
pub(crate) enum NoFreshDirectory {
    /// Something is there already.
    Exists,
    /// It cannot be made.
    Failed(io::Error),
}

impl FreshDirectory {
    /// Makes one for `place`, which must not exist or be an empty directory.
    pub(crate) fn prepare(place: &Path) -> Result<Self, NoFreshDirectory> {
        let is_free = match std::fs::read_dir(place) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if !is_free {
            return Err(NoFreshDirectory::Exists);
        }
        let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let make = || -> io::Result<(tempfile::TempDir, PathBuf)> {
            std::fs::create_dir_all(parent)?;
            let hidden = tempfile::Builder::new().prefix(".trainmon-unfinished-").tempdir_in(parent)?;
            let inside = hidden.path().join("output");
            std::fs::create_dir(&inside)?;
            Ok((hidden, inside))
        };
        let (hidden, inside) = make().map_err(NoFreshDirectory::Failed)?;
        Ok(Self { hidden, inside, place: place.to_path_buf() })
    }

    /// Where to write meanwhile.
    pub(crate) fn path(&self) -> &Path {
        &self.inside
    }

    /// Gives it its final place.
    pub(crate) fn put_in_place(self) -> io::Result<()> {
        std::fs::rename(&self.inside, &self.place)?;
        self.hidden.close()
    }
}
