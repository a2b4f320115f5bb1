//! torch's own files: an archive with a pickle and one entry per storage; before torch 1.6, several pickles in a row
//! and the storages after them.

mod archive;
mod legacy;

use std::collections::HashSet;

pub(super) use self::archive::{ARCHIVE_MAGIC, read_archive};
pub(super) use self::legacy::{looks_legacy, read_legacy};
use super::contents::{Contents, Entry, Place, Unreadable};
use super::error::FormatError;
use super::pickle::Pickled;
use super::rebuild::View;
use super::tree::{self, TreeEntry};

/// The largest total size of names: each tensor's name is kept, and shared structures could otherwise fill the memory
/// with names.
const MAX_NAME_BYTES: u64 = 256 << 20;

/// Returns the offset of a storage and its size in bytes, by its key.
type FindStorage<'a> = dyn FnMut(&str) -> Result<(u64, u64), FormatError> + 'a;

/// The contents of the structure, with its storages found by their keys.
fn contents(pickled: Pickled, storage: &mut FindStorage<'_>) -> Result<Contents, FormatError> {
    let mut contents = Contents::default();
    let (mut names, mut name_bytes) = (HashSet::new(), 0);
    tree::walk(pickled.root(), &mut |name, found| {
        let place = match found {
            TreeEntry::Leaf(_) => return,
            TreeEntry::Unreadable(error) => Err(error),
            TreeEntry::Array(array, id) => Ok((array.dtype, array.shape, Place::Pickled(id))),
            TreeEntry::Tensor(view) => placed(&view, storage).map(|(from, length)| {
                let View { strided: view, .. } = view;
                (view.dtype, view.shape, Place::View { from, length, view })
            }),
        };
        name_bytes += name.len() as u64;
        if name_bytes > MAX_NAME_BYTES {
            return;
        }
        let name = unique(name, &mut names);
        match place {
            Ok((dtype, shape, place)) => contents.tensors.push((Entry { name, dtype, shape }, place)),
            Err(error) => contents.unreadable.push(Unreadable { name, error }),
        }
    })?;
    if name_bytes > MAX_NAME_BYTES {
        return Err(FormatError::TooMuch { what: "bytes of tensors' names", found: name_bytes, limit: MAX_NAME_BYTES });
    }
    contents.pickled = Some(pickled);
    Ok(contents)
}

/// The location of a view's storage. Checks that the view is within it and that it is as large as the pickle says.
fn placed(view: &View<'_>, storage: &mut FindStorage<'_>) -> Result<(u64, u64), FormatError> {
    let (from, length) = storage(view.key)?;
    if length < view.storage_bytes {
        return Err(FormatError::Truncated {
            what: "a storage",
            from,
            to: from.saturating_add(view.storage_bytes),
            available: from + length,
        });
    }
    view.strided.check(view.storage_bytes)?;
    Ok((from, view.storage_bytes))
}

/// Makes a name unique: `{"a.b": x, "a": {"b": y}}` has two places with one name.
fn unique(name: &str, names: &mut HashSet<String>) -> String {
    let mut candidate = name.to_owned();
    let mut count = 1;
    while !names.insert(candidate.clone()) {
        count += 1;
        candidate = format!("{name}#{count}");
    }
    candidate
}
