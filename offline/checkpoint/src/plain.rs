//! A checkpoint in one file.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use trainmon_report::first_of;
use trainmon_tensor_files::{Kind, TensorFile};

use super::contents::Checkpoint;
use super::error::CheckpointError;
use super::layout::Layout;

/// The name of the tensor in a file that consists of one tensor.
const ONLY: &str = "tensor";

/// The number of names of plain values in a note.
const VALUES_SHOWN: usize = 3;

/// Keys under which frameworks store a model's weights beside other data; the first existing one is used.
const MODEL_KEYS: [&str; 4] = ["state_dict", "model_state_dict", "model", "module"];

pub(super) fn has_its_ending(name: &str) -> bool {
    [".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".npy"].iter().any(|ending| name.ends_with(ending))
}

/// Opens the file. Tensors under one key beside an optimizer's lose that key, so that two frameworks' files have the
/// same names; other tensors keep their names.
pub(super) fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let mut checkpoint = Checkpoint::new(path, Layout::Plain);
    let file = checkpoint.open(path)?;
    let entries = checkpoint.files[file].entries();
    let is_key_of_dict = |key: &str| {
        let value = checkpoint.files[file].root().and_then(|root| root.get(key));
        value.is_some_and(|value| value.pairs().len() > 0)
            && entries.iter().any(|entry| entry.name.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
    };
    let key = MODEL_KEYS.into_iter().find(|key| is_key_of_dict(key));
    let (values, note) = plain_values(&checkpoint.files[file])?;
    let taken: HashSet<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    checkpoint.take_all(file, &|name| {
        let bare = key.and_then(|key| name.strip_prefix(key)).and_then(|rest| rest.strip_prefix('.'));
        // Another tensor may have the bare name.
        let name = bare.filter(|bare| !taken.contains(*bare)).unwrap_or(name);
        // A file that is one tensor has no name: other files store it under one.
        Some(if name.is_empty() { ONLY } else { name }.to_owned())
    });
    checkpoint.values = values;
    checkpoint.notes.extend(note);
    Ok(checkpoint)
}

/// The numbers and texts of a file, and a note about other values, which are not compared.
fn plain_values(file: &TensorFile) -> Result<(BTreeMap<String, String>, Option<String>), CheckpointError> {
    let mut values = BTreeMap::new();
    let mut others = Vec::new();
    for (name, item) in file.leaves()? {
        let name = if name.is_empty() { ONLY.to_owned() } else { name };
        match item.kind() {
            Kind::None => {}
            Kind::Bool(value) => drop(values.insert(name, if value { "True" } else { "False" }.to_owned())),
            Kind::Int(value) => drop(values.insert(name, value.to_string())),
            Kind::Float(value) => drop(values.insert(name, format!("{value:?}"))),
            Kind::Text(value) => drop(values.insert(name, format!("{value:?}"))),
            _ => others.push(name),
        }
    }
    let (count, are) = if others.len() == 1 { ("value", "is") } else { ("values", "are") };
    let note = (!others.is_empty()).then(|| {
        let names = first_of(others.iter(), VALUES_SHOWN);
        format!("{} {count} {are} neither tensor, number nor text and {are} not compared: {names}", others.len())
    });
    Ok((values, note))
}
