//! Which journals a path means.

use std::io;
use std::path::{Path, PathBuf};

use trainmon_journal::FILE_EXTENSION;

/// Why no journal can be found.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum JournalsError {
    /// The directory holds no journal.
    #[error("no journal in `{}` or in a directory in it", path.display())]
    NoJournal { path: PathBuf },
    /// A directory cannot be read.
    #[error("cannot read directory `{}`", path.display())]
    ReadDirectory { path: PathBuf, source: io::Error },
}

impl JournalsError {
    /// What to do about it.
    pub fn hint(&self) -> &str {
        match self {
            Self::NoJournal { .. } => "a journal is called journal_rank<N>.tmj and lies beside its rank's CSV files",
            Self::ReadDirectory { .. } => "make the directory readable",
        }
    }
}

/// The journal, or those of a directory and of the directories in it, by name.
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
        // `….2.tmj` after `….tmj`, whatever their letters.
        entries.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        Ok(entries)
    };
    read().map_err(|source| JournalsError::ReadDirectory { path: directory.to_path_buf(), source })
}
