//! Names and modification times of files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::LogError;

/// The entries of a directory, sorted by name.
pub(crate) fn entries(path: &Path) -> Result<Vec<PathBuf>, LogError> {
    let read = || fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>();
    let mut entries = read().map_err(|source| LogError::Read { path: path.to_path_buf(), source })?;
    entries.sort();
    Ok(entries)
}

/// The last part of a path, as text.
pub(crate) fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The time at which a file was last modified.
pub(crate) fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|facts| facts.modified()).ok()
}
