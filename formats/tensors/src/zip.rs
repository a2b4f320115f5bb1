//! Finds the entries of a zip archive.
//!
//! This is our own reader because the `zip` crate reserves memory for as many entries as a header claims (a sparse file
//! of a few gigabytes then ends the process). Only the places of entries are needed: torch stores its entries
//! uncompressed, and compressed ones are refused.

use super::error::{FormatError, part};

const END: [u8; 4] = *b"PK\x05\x06";
const END_BYTES: usize = 22;
const LONG_END: [u8; 4] = *b"PK\x06\x06";
const LONG_LOCATOR: [u8; 4] = *b"PK\x06\x07";
const LONG_LOCATOR_BYTES: usize = 20;
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const CENTRAL_BYTES: u64 = 46;
const LOCAL: [u8; 4] = *b"PK\x03\x04";
const LOCAL_BYTES: u64 = 30;
/// The largest comment of an archive: its length has 16 bits.
const MAX_COMMENT: usize = 0xffff;
/// The id of the extra field with sizes beyond 32 bits.
const LONG_SIZES: u16 = 1;
const IN_LONG_SIZES: u64 = 0xffff_ffff;

/// An entry. Its local header is read when its place is requested.
#[derive(Debug)]
pub(super) struct ZipEntry {
    pub(super) name: String,
    method: u16,
    is_encrypted: bool,
    size: u64,
    header_at: u64,
}

/// The entries in the archive's directory.
pub(super) fn entries(archive: &[u8]) -> Result<Vec<ZipEntry>, FormatError> {
    let (mut at, length) = directory(archive)?;
    let directory = part(archive, "the archive's directory", 0, at.saturating_add(length))?;
    let mut entries = Vec::new();
    while at < directory.len() as u64 {
        let header = part(directory, "an entry of the archive's directory", at, CENTRAL_BYTES)?;
        if header[..4] != CENTRAL {
            return Err(FormatError::malformed("an entry of the archive's directory", at as usize, "no such header"));
        }
        let [name_bytes, extra_bytes, comment_bytes] = [28, 30, 32].map(|place| u64::from(u16_at(header, place)));
        let name = part(directory, "an entry's name", at + CENTRAL_BYTES, name_bytes)?;
        let extra = part(directory, "an entry's extra field", at + CENTRAL_BYTES + name_bytes, extra_bytes)?;
        let mut entry = ZipEntry {
            name: String::from_utf8_lossy(name).into_owned(),
            method: u16_at(header, 10),
            is_encrypted: u16_at(header, 8) & 1 != 0,
            size: u64::from(u32_at(header, 24)),
            header_at: u64::from(u32_at(header, 42)),
        };
        let packed = u64::from(u32_at(header, 20));
        entry.take_long_sizes(packed, extra);
        entries.push(entry);
        at += CENTRAL_BYTES + name_bytes + extra_bytes + comment_bytes;
    }
    Ok(entries)
}

impl ZipEntry {
    /// The offset and length of the entry's bytes: always within the archive.
    pub(super) fn place(&self, archive: &[u8]) -> Result<(u64, u64), FormatError> {
        if self.is_encrypted || self.method != 0 {
            let how = if self.is_encrypted { "encrypted" } else { "compressed" };
            return Err(FormatError::unsupported(
                "an archive that torch did not write",
                format!("`{}` is {how}", self.name),
            ));
        }
        let header = part(archive, "the header of an archive's entry", self.header_at, LOCAL_BYTES)?;
        if header[..4] != LOCAL {
            let found = format!("no header of `{}`", self.name);
            return Err(FormatError::malformed("an entry of the archive", self.header_at as usize, found));
        }
        let [name_bytes, extra_bytes] = [26, 28].map(|place| u64::from(u16_at(header, place)));
        let begin = self.header_at + LOCAL_BYTES + name_bytes + extra_bytes;
        part(archive, "an entry of the archive", begin, self.size)?;
        Ok((begin, self.size))
    }

    /// Reads sizes beyond 32 bits from an extra field, which contains only those, in this order.
    fn take_long_sizes(&mut self, packed: u64, mut extra: &[u8]) {
        while let [id0, id1, length0, length1, rest @ ..] = extra {
            let length = usize::from(u16::from_le_bytes([*length0, *length1]));
            let Some((field, others)) = rest.split_at_checked(length) else { return };
            extra = others;
            if u16::from_le_bytes([*id0, *id1]) != LONG_SIZES {
                continue;
            }
            let mut numbers = field.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
            if self.size == IN_LONG_SIZES {
                self.size = numbers.next().unwrap_or(self.size);
            }
            if packed == IN_LONG_SIZES {
                numbers.next();
            }
            if self.header_at == IN_LONG_SIZES {
                self.header_at = numbers.next().unwrap_or(self.header_at);
            }
        }
    }
}

/// The offset and length of the directory.
fn directory(archive: &[u8]) -> Result<(u64, u64), FormatError> {
    let missing = || FormatError::Truncated {
        what: "the directory at the archive's end",
        from: archive.len() as u64,
        to: archive.len() as u64 + END_BYTES as u64,
        available: archive.len() as u64,
    };
    let last = archive.len().checked_sub(END_BYTES).ok_or_else(missing)?;
    let is_end = |at: usize| {
        let rest = &archive[at..];
        rest[..4] == END && usize::from(u16_at(rest, 20)) == rest.len() - END_BYTES
    };
    let end_at = (last.saturating_sub(MAX_COMMENT)..=last).rev().find(|&at| is_end(at)).ok_or_else(missing)?;
    let end = &archive[end_at..];
    let short = (u64::from(u32_at(end, 16)), u64::from(u32_at(end, 12)));
    let Some(locator) = end_at.checked_sub(LONG_LOCATOR_BYTES).map(|at| &archive[at..end_at]) else {
        return Ok(short);
    };
    if locator[..4] != LONG_LOCATOR {
        return Ok(short);
    }
    let at = u64_at(locator, 8);
    let long = part(archive, "the archive's 64-bit directory", at, 56)?;
    if long[..4] != LONG_END {
        return Err(FormatError::malformed("the archive's 64-bit directory", at as usize, "no such header"));
    }
    Ok((u64_at(long, 48), u64_at(long, 40)))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
