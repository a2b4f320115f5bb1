//! Hugging Face's layout: one file of weights, or several with an index that maps tensors to files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::contents::Checkpoint;
use super::directory::{MAX_INDEX, read_small};
use super::error::CheckpointError;
use super::layout::Layout;

const INDEXES: [&str; 2] = ["model.safetensors.index.json", "pytorch_model.bin.index.json"];
const FILES: [&str; 4] = ["model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin"];

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Whether the file's name is that of an index of several files.
pub(super) fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| INDEXES.iter().any(|index| name == *index))
}

/// Opens the checkpoint of an index: the files in its directory.
pub(super) fn open_index(index: &Path) -> Result<Checkpoint, CheckpointError> {
    let mut checkpoint = Checkpoint::new(index.parent().unwrap_or(Path::new("")), Layout::HuggingFace);
    sharded(&mut checkpoint, index)?;
    Ok(checkpoint)
}

/// Opens the checkpoint in a directory with these names, if it is one.
pub(super) fn open(path: &Path, names: &[String]) -> Result<Option<Checkpoint>, CheckpointError> {
    let has = |name: &str| names.iter().any(|found| found == name);
    let mut checkpoint = Checkpoint::new(path, Layout::HuggingFace);
    if let Some(index) = INDEXES.into_iter().find(|name| has(name)) {
        sharded(&mut checkpoint, &path.join(index))?;
        return Ok(Some(checkpoint));
    }
    let Some(name) = FILES.into_iter().find(|name| has(name)) else { return Ok(None) };
    let file = checkpoint.open(&path.join(name))?;
    checkpoint.take_all(file, &|name| Some(name.to_owned()));
    Ok(Some(checkpoint))
}

fn sharded(checkpoint: &mut Checkpoint, index_path: &Path) -> Result<(), CheckpointError> {
    let text = read_small(index_path, MAX_INDEX)?;
    let index: Index = serde_json::from_slice(&text)
        .map_err(|source| CheckpointError::Index { path: index_path.to_path_buf(), source })?;
    let wrong = |expected, found| CheckpointError::Structure { path: index_path.to_path_buf(), expected, found };
    let files: BTreeSet<&String> = index.weight_map.values().collect();
    for name in files {
        if Path::new(name).components().count() != 1 || name.contains("..") {
            return Err(wrong("names of files in the directory of the index", format!("{name:?}")));
        }
        let file = checkpoint.open(&checkpoint.path.join(name))?;
        checkpoint.take_all(file, &|tensor| (index.weight_map.get(tensor) == Some(name)).then(|| tensor.to_owned()));
    }
    let missing = index
        .weight_map
        .keys()
        .find(|name| !checkpoint.tensors.contains_key(*name) && !checkpoint.unreadable.contains_key(*name));
    match missing {
        Some(name) => Err(wrong("every tensor of the index in its file", format!("no `{name}`"))),
        None => Ok(()),
    }
}
