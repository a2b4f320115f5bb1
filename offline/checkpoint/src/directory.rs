//! What lies in a directory: names, and small files that say which of them is meant.

use std::path::{Path, PathBuf};

use trainmon_report::first_of;

use super::error::CheckpointError;

/// So many names are shown of a directory that is nothing known.
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

/// A word and a line's end.
const MAX_POINTER: u64 = 4096;
/// An index has some hundred bytes per tensor.
pub(super) const MAX_INDEX: u64 = 1 << 30;

/// The word in a small file that says which of several directories is meant.
pub(super) fn pointer(path: &Path) -> Result<Option<String>, CheckpointError> {
    if !path.exists() {
        return Ok(None);
    }
    let text = read_small(path, MAX_POINTER)?;
    Ok(Some(String::from_utf8_lossy(&text).trim().to_owned()))
}

/// A small file beside the tensors. One that is larger, or would keep its reader waiting, is none.
pub(super) fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>, CheckpointError> {
    let failed = |source| CheckpointError::Read { path: path.to_path_buf(), source };
    let facts = path.metadata().map_err(failed)?;
    if !facts.is_file() || facts.len() > limit {
        let found = if facts.is_file() { format!("one of {}", facts.len()) } else { "another thing".to_owned() };
        let expected = if limit == MAX_POINTER { "a file of one word" } else { "a file of at most 1 GiB" };
        return Err(CheckpointError::Structure { path: path.to_path_buf(), expected, found });
    }
    std::fs::read(path).map_err(failed)
}

/// A directory the file `pointer` names: one beside it, not elsewhere.
pub(super) fn pointed(path: &Path, pointer: &str, name: &str) -> Result<PathBuf, CheckpointError> {
    let directory = path.join(name);
    let is_plain_name = Path::new(name).components().count() == 1 && !name.contains("..") && !name.is_empty();
    if is_plain_name && directory.is_dir() {
        return Ok(directory);
    }
    let (path, expected) = (path.join(pointer), "the name of a directory beside it");
    Err(CheckpointError::Structure { path, expected, found: format!("{name:?}, where there is none") })
}

pub(super) fn shown(names: &[String]) -> String {
    match names {
        [] => "it is empty".to_owned(),
        names => format!("it holds {}", first_of(names.iter(), SHOWN)),
    }
}
