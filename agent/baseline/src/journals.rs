//! The journals of a path.

use std::io;
use std::path::{Path, PathBuf};

use trainmon_journal::FILE_EXTENSION;

/// Why no journal was found.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum JournalsError {
    /// The directory contains no journal.
    #[error("no journal in `{}` or its subdirectories", path.display())]
    NoJournal { path: PathBuf },
    /// A directory cannot be read.
    #[error("cannot read directory `{}`", path.display())]
    ReadDirectory { path: PathBuf, source: io::Error },
}

impl JournalsError {
    /// Advice on what to do.
    pub fn hint(&self) -> &str {
        match self {
            Self::NoJournal { .. } => "look for `journal_rank<N>.tmj`, next to the rank's CSV files",
            Self::ReadDirectory { .. } => "make the directory readable",
        }
    }
}

/// The journal, or all journals in a directory and its direct subdirectories, by name.
///
/// # Errors
/// A directory cannot be read, or there is no journal.
pub fn journals_in(path: &Path) -> Result<Vec<PathBuf>, JournalsError> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut found = Vec::new();
    for entry in sorted(path)? {
        if is_journal(&entry) {
            found.push(entry);
        } else if entry.is_dir() {
            found.extend(sorted(&entry)?.into_iter().filter(|file| is_journal(file)));
        }
    }
    if found.is_empty() { Err(JournalsError::NoJournal { path: path.to_path_buf() }) } else { Ok(found) }
}

fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == FILE_EXTENSION) && path.is_file()
}

fn sorted(directory: &Path) -> Result<Vec<PathBuf>, JournalsError> {
    let read = || -> io::Result<Vec<PathBuf>> {
        let mut entries = std::fs::read_dir(directory)?.map(|e| e.map(|e| e.path())).collect::<io::Result<Vec<_>>>()?;
        // `….2.tmj` after `….tmj`, regardless of the letters.
        entries.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        Ok(entries)
    };
    read().map_err(|source| JournalsError::ReadDirectory { path: directory.to_path_buf(), source })
}
