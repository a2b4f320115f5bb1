//! Which journals a path means, and where the files of each go.

use std::io;
use std::path::{Path, PathBuf};

use trainmon_core::Rank;
use trainmon_core::config::Dialect;
use trainmon_dump::journal::FILE_EXTENSION;

use super::error::RecoverError;

/// A journal to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    place: Place,
}

/// Where its files go in the output.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The output itself.
    Top,
    /// A directory of the rank's.
    OfRank {
        /// How many journals before it there are of the same place.
        before: usize,
    },
    /// The directory its journal lay in.
    Named {
        /// The directory's name.
        name: PathBuf,
        /// How many journals before it there are of the same place.
        before: usize,
    },
}

impl Source {
    /// The file's length, for telling how far things are.
    pub(super) fn length(&self) -> u64 {
        self.path.metadata().map_or(0, |file| file.len())
    }

    /// The directory of its files below `out`.
    pub(super) fn directory(&self, out: &Path, dialect: Dialect, rank: Rank) -> PathBuf {
        let counted = |name: String, before: usize| match before {
            0 => out.join(name),
            before => out.join(format!("{name}-{}", before + 1)),
        };
        match &self.place {
            Place::Top => out.to_path_buf(),
            Place::Named { name, before } => counted(name.display().to_string(), *before),
            Place::OfRank { before } => match dialect {
                Dialect::V1 => counted(format!("rank{rank}"), *before),
                Dialect::V2 => counted(format!("rank_{rank}"), *before),
            },
        }
    }
}

/// The journal, or those of a directory and of the directories in it, by name.
pub(super) fn sources(path: &Path) -> Result<Vec<Source>, RecoverError> {
    if !path.is_dir() {
        return Ok(vec![Source { path: path.to_path_buf(), place: Place::Top }]);
    }
    let mut found = Vec::new();
    for entry in sorted(path)? {
        if is_journal(&entry) {
            let before = found.iter().filter(|source: &&Source| same_rank(&source.path, &entry)).count();
            found.push(Source { path: entry, place: Place::OfRank { before } });
        } else if entry.is_dir() {
            let journals = sorted(&entry)?.into_iter().filter(|file| is_journal(file));
            found.extend(journals.enumerate().map(|(before, file)| {
                let name = entry.file_name().map_or_else(PathBuf::new, PathBuf::from);
                Source { path: file, place: Place::Named { name, before } }
            }));
        }
    }
    if found.is_empty() { Err(RecoverError::NoJournal { path: path.to_path_buf() }) } else { Ok(found) }
}

/// The files of [`sources`].
pub(crate) fn journals_in(path: &Path) -> Result<Vec<PathBuf>, RecoverError> {
    Ok(sources(path)?.into_iter().map(|source| source.path).collect())
}

fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == FILE_EXTENSION) && path.is_file()
}

/// `journal_rank0.tmj` and `journal_rank0.2.tmj` are of one rank.
fn same_rank(one: &Path, other: &Path) -> bool {
    let rank = |path: &Path| path.file_name().and_then(|name| name.to_str()?.split('.').next().map(str::to_owned));
    rank(one) == rank(other)
}

fn sorted(directory: &Path) -> Result<Vec<PathBuf>, RecoverError> {
    let read = || -> io::Result<Vec<PathBuf>> {
        let mut entries = std::fs::read_dir(directory)?.map(|e| e.map(|e| e.path())).collect::<io::Result<Vec<_>>>()?;
        // `….2.tmj` after `….tmj`, whatever their letters.
        entries.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        Ok(entries)
    };
    read().map_err(|source| RecoverError::ReadDirectory { path: directory.to_path_buf(), source })
}
