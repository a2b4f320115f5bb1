//! torch's format since 1.6.

use std::collections::HashMap;

use crate::contents::Contents;
use crate::error::FormatError;
use crate::file_bytes::FileBytes;
use crate::pickle;
use crate::zip::{self, ZipEntry};

/// The first bytes of every archive with an entry.
pub(crate) const ARCHIVE_MAGIC: &[u8] = b"PK\x03\x04";

pub(crate) fn read_archive(bytes: &FileBytes) -> Result<Contents, FormatError> {
    let entries = zip::entries(bytes)?;
    let Some(root) = entries.iter().find_map(|entry| entry.name.strip_suffix("/data.pkl")) else {
        return Err(FormatError::unsupported("an archive without `data.pkl`", format!("{} entries", entries.len())));
    };
    let by_name: HashMap<&str, &ZipEntry> =
        entries.iter().filter_map(|entry| Some((entry.name.strip_prefix(root)?.strip_prefix('/')?, entry))).collect();
    if by_name.contains_key("constants.pkl") {
        return Err(FormatError::unsupported("a TorchScript program", "`constants.pkl` in the archive"));
    }
    let place = |name: &str| {
        let missing = || FormatError::malformed("an archive of torch", 0, format!("no entry `{name}`"));
        by_name.get(name).ok_or_else(missing)?.place(bytes)
    };
    if by_name.contains_key("byteorder") {
        let (from, length) = place("byteorder")?;
        let order = bytes.part("the archive's byte order", from, length)?;
        if !order.starts_with(b"little") {
            return Err(FormatError::unsupported(
                "a file of this byte order",
                String::from_utf8_lossy(&order[..order.len().min(16)]),
            ));
        }
    }
    let (from, length) = place("data.pkl")?;
    let (pickled, _) = pickle::read(&bytes.part("`data.pkl`", from, length)?)?;
    super::contents(pickled, &mut |key| place(&format!("data/{key}")))
}
