//! The format of torch before 1.6, which it still writes on demand: four pickles (a magic number, a version, facts of the
//! machine, the structure), a pickled list of storages, and these, each a count of elements and the elements.

use std::collections::HashMap;

use crate::tensor_file::contents::Contents;
use crate::tensor_file::error::{FormatError, part};
use crate::tensor_file::file_bytes::FileBytes;
use crate::tensor_file::pickle::{self, Item, Pickled};
use crate::tensor_file::rebuild::Storage;
use crate::tensor_file::tree::{self, TreeEntry};

/// `PROTO 2`, `LONG1` of ten bytes: the magic number, then `STOP`.
const MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
const VERSION: i64 = 1001;

pub(in crate::tensor_file) fn looks_legacy(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

pub(in crate::tensor_file) fn read_legacy(bytes: &FileBytes) -> Result<Contents, FormatError> {
    let mut at = MAGIC.len();
    let version = next_pickle(bytes, &mut at)?;
    if version.root().as_int() != Some(VERSION) {
        return Err(FormatError::unsupported(
            "this version of torch's old format",
            format!("{:?}", version.root().kind()),
        ));
    }
    let machine = next_pickle(bytes, &mut at)?;
    if machine.root().get("little_endian").and_then(Item::as_bool) == Some(false) {
        return Err(FormatError::unsupported("a file of this byte order", "big"));
    }
    let pickled = next_pickle(bytes, &mut at)?;
    let keys = next_pickle(bytes, &mut at)?;
    let places = storages(bytes, at as u64, &pickled, &keys)?;
    let missing = |key: &str| FormatError::malformed("a file of torch", at, format!("no storage `{key}`"));
    super::contents(pickled, &mut |key| places.get(key).copied().ok_or_else(|| missing(key)))
}

fn next_pickle(bytes: &[u8], at: &mut usize) -> Result<Pickled, FormatError> {
    let (pickled, length) = pickle::read(&bytes[*at..])?;
    *at += length;
    Ok(pickled)
}

/// Where each storage lies. Its element's size is known from the structure alone; one that no tensor names (a bare
/// storage) ends the list, for where the next one begins is not known.
fn storages(
    bytes: &[u8],
    mut at: u64,
    pickled: &Pickled,
    keys: &Pickled,
) -> Result<HashMap<String, (u64, u64)>, FormatError> {
    let mut widths: HashMap<&str, u64> = HashMap::new();
    tree::walk(pickled.root(), &mut |_, found| match found {
        TreeEntry::Tensor(view) => drop(widths.insert(view.key, view.storage_width)),
        TreeEntry::Leaf(item) => {
            if let Some(Ok(storage)) = Storage::of(item) {
                widths.insert(storage.key, storage.width());
            }
        }
        TreeEntry::Unreadable(_) => {}
    })?;
    let mut places = HashMap::new();
    for key in keys.root().items() {
        let Some((key, width)) = key.as_text().and_then(|key| Some((key, *widths.get(key)?))) else { break };
        let count = part(bytes, "a storage's length", at, 8)?;
        let count = count.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
        let length = count.saturating_mul(width);
        part(bytes, "a storage", at + 8, length)?;
        places.insert(key.to_owned(), (at + 8, length));
        at += 8 + length;
    }
    Ok(places)
}
