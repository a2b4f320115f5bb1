//! Detects the kind of a checkpoint.

use std::path::Path;

use super::contents::Checkpoint;
use super::directory::{names_in, shown};
use super::error::CheckpointError;
use super::layout::Dialect;
use super::{dcp, deepspeed, hf, megatron, plain};

/// Whether the path is a file with a checkpoint's name, or a directory with a checkpoint's layout, even a damaged one.
pub fn is_one(path: &Path) -> bool {
    if path.is_file() {
        return hf::is_index(path)
            || path.file_name().and_then(|name| name.to_str()).is_some_and(plain::has_its_ending);
    }
    let refused = open(path, Dialect::Ours).err();
    path.is_dir()
        && !matches!(refused, Some(CheckpointError::NotACheckpoint { .. } | CheckpointError::ReadDirectory { .. }))
}

/// Opens the checkpoint at `path`.
pub(super) fn open(path: &Path, dialect: Dialect) -> Result<Checkpoint, CheckpointError> {
    if !path.is_dir() {
        if hf::is_index(path) {
            return hf::open_index(path);
        }
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
        let (path, expected) = (path.to_path_buf(), "`.metadata`, the index of the `.distcp` files");
        return Err(CheckpointError::Structure { path, expected, found: "none".to_owned() });
    }
    // A single file of tensors that no other layout explains.
    let files: Vec<&String> = names.iter().filter(|name| plain::has_its_ending(name)).collect();
    match files[..] {
        [one] => plain::open(&path.join(one)),
        _ => Err(CheckpointError::NotACheckpoint { path: path.to_path_buf(), found: shown(&names) }),
    }
}
