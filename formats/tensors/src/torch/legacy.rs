//! torch's format before 1.6, which it still writes on request. It has four pickles (a magic number, a version, facts
//! about the machine, the structure) and a pickled list of storages. The storages follow, each a count of elements and
//! the elements.

use std::collections::HashMap;

use crate::contents::Contents;
use crate::error::{FormatError, part};
use crate::file_bytes::FileBytes;
use crate::pickle::{self, Item, Kind, Pickled};
use crate::rebuild;

/// The magic number, little-endian.
const MAGIC: &[u8] = b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
/// The largest size of the magic number's pickle, in any protocol.
const MAX_MAGIC: usize = 64;
const VERSION: i64 = 1001;

pub(crate) fn looks_legacy(bytes: &[u8]) -> bool {
    after_magic(bytes).is_some()
}

/// The end of the magic number's pickle, if the file begins with it.
fn after_magic(bytes: &[u8]) -> Option<usize> {
    let (pickled, end) = pickle::read(&bytes[..bytes.len().min(MAX_MAGIC)]).ok()?;
    matches!(pickled.root().kind(), Kind::Long(MAGIC)).then_some(end)
}

pub(crate) fn read_legacy(bytes: &FileBytes) -> Result<Contents, FormatError> {
    let no_magic = || FormatError::malformed("a file of torch", 0, "no magic number");
    let mut at = after_magic(bytes).ok_or_else(no_magic)?;
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

/// The locations of the storages. The size of a storage's elements is known only from the structure. A storage that is
/// not in the structure, or whose class torch does not have, ends the list, because the position of the next one is
/// unknown.
fn storages(
    bytes: &[u8],
    mut at: u64,
    pickled: &Pickled,
    keys: &Pickled,
) -> Result<HashMap<String, (u64, u64)>, FormatError> {
    let widths: HashMap<&str, u64> = pickled.all().filter_map(rebuild::key_and_width).collect();
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
