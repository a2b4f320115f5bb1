//! Which kind of checkpoint a path is.

use std::path::{Path, PathBuf};

use super::contents::{Checkpoint, Layout};
use super::error::CheckpointError;
use super::{Dialect, dcp, deepspeed, hf, megatron, plain};

/// So many names are shown of a directory that is nothing known.
const SHOWN: usize = 5;

/// Whether the path is a file that is called as checkpoints are, or a directory laid out as one, be it damaged.
pub fn is_one(path: &Path) -> bool {
    if path.is_file() {
        return path.file_name().and_then(|name| name.to_str()).is_some_and(plain::has_its_ending);
    }
    let refused = open(path, Dialect::Ours).err();
    path.is_dir()
        && !matches!(refused, Some(CheckpointError::NotACheckpoint { .. } | CheckpointError::ReadDirectory { .. }))
}

/// Opens the checkpoint at `path`.
pub(super) fn open(path: &Path, dialect: Dialect) -> Result<Checkpoint, CheckpointError> {
    if !path.is_dir() {
        return plain::open(path);
    }
    let names = names_in(path)?;
    if dcp::is_one(path) {
        return dcp::open(path, path);
    }
    if let Some(directory) = megatron::iteration_of(path, &names)? {
        if dcp::is_one(&directory) {
            return dcp::open(path, &directory);
        }
        return megatron::open(path, &directory, dialect);
    }
    if let Some(directory) = deepspeed::tag_of(path, &names)? {
        return deepspeed::open(path, &directory);
    }
    if let Some(checkpoint) = hf::open(path, &names)? {
        return Ok(checkpoint);
    }
    if names.iter().any(|name| name.ends_with(dcp::ENDING)) {
        let (path, expected) = (path.to_path_buf(), "`.metadata`, which says what is where in the `.distcp` files");
        return Err(CheckpointError::Structure { path, expected, found: "none".to_owned() });
    }
    // One file of tensors that nobody else's layout explains.
    let files: Vec<&String> = names.iter().filter(|name| plain::has_its_ending(name)).collect();
    match files[..] {
        [one] => plain::open(&path.join(one)),
        _ => Err(CheckpointError::NotACheckpoint { path: path.to_path_buf(), found: shown(&names) }),
    }
}

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
        names if names.len() > SHOWN => {
            format!("it holds {} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN)
        }
        names => format!("it holds {}", names.join(", ")),
    }
}

impl Layout {
    /// For people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Plain => "a file of tensors",
            Self::Megatron => "Megatron",
            Self::Deepspeed => "DeepSpeed",
            Self::Distributed => "torch distributed",
            Self::HuggingFace => "Hugging Face",
        }
    }
}
