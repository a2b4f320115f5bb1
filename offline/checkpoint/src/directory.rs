//! The contents of a directory: names, and small files that point to one of them.

use std::path::{Path, PathBuf};

use trainmon_report::first_of;

use super::error::CheckpointError;

/// The number of names shown for an unknown directory.
const SHOWN: usize = 5;

/// The names in a directory, sorted.
pub(super) fn names_in(path: &Path) -> Result<Vec<String>, CheckpointError> {
    let failed = |source| CheckpointError::ReadDirectory { path: path.to_path_buf(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The largest pointer file: a word and a line end.
const MAX_POINTER: u64 = 4096;
/// The largest index: about a hundred bytes per tensor.
pub(super) const MAX_INDEX: u64 = 1 << 30;

/// The word in a small file that names one of several directories.
pub(super) fn pointer(path: &Path) -> Result<Option<String>, CheckpointError> {
    if !path.exists() {
        return Ok(None);
    }
    let text = read_small(path, MAX_POINTER)?;
    Ok(Some(String::from_utf8_lossy(&text).trim().to_owned()))
}

/// Reads a small file beside the tensors. A larger file, or one that would block its reader, is refused.
pub(super) fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>, CheckpointError> {
    let failed = |source| CheckpointError::Read { path: path.to_path_buf(), source };
    let facts = path.metadata().map_err(failed)?;
    if !facts.is_file() || facts.len() > limit {
        let found = if facts.is_file() {
            format!("a file of {} bytes", facts.len())
        } else {
            "something other than a file".to_owned()
        };
        let expected = if limit == MAX_POINTER { "a file with one word" } else { "a file of at most 1 GiB" };
        return Err(CheckpointError::Structure { path: path.to_path_buf(), expected, found });
    }
    std::fs::read(path).map_err(failed)
}

/// The directory that the file `pointer` names, which must be in the same directory.
pub(super) fn pointed(path: &Path, pointer: &str, name: &str) -> Result<PathBuf, CheckpointError> {
    let directory = path.join(name);
    let is_plain_name = Path::new(name).components().count() == 1 && !name.contains("..") && !name.is_empty();
    if is_plain_name && directory.is_dir() {
        return Ok(directory);
    }
    let (path, expected) = (path.join(pointer), "the name of a directory in the same place");
    Err(CheckpointError::Structure { path, expected, found: format!("{name:?}, which does not exist") })
}

pub(super) fn shown(names: &[String]) -> String {
    match names {
        [] => "the directory is empty".to_owned(),
        names => format!("it contains {}", first_of(names.iter(), SHOWN)),
    }
}
