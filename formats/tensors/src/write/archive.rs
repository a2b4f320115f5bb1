//! Writes a zip archive of stored entries, with 64-bit sizes where necessary.

use std::io::{self, Write};

/// Marks a size beyond 32 bits, which is stored in its own field.
const IN_LONG_FIELD: u32 = u32::MAX;
/// Version 4.5 of the format introduced 64-bit sizes.
const VERSION: u16 = 45;

pub(super) struct Archive<W> {
    out: W,
    at: u64,
    directory: Vec<u8>,
    entries: u64,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, at: 0, directory: Vec::new(), entries: 0 }
    }

    /// Writes an entry. Its bytes begin at a multiple of 64, as in torch's archives, so that they can be mapped.
    pub(super) fn entry(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.entry_of_crc(name, bytes, crc32fast::hash(bytes))
    }

    /// As [`entry`](Self::entry), for bytes with a known CRC-32.
    pub(super) fn entry_of_crc(&mut self, name: &str, bytes: &[u8], crc: u32) -> io::Result<()> {
        let size = bytes.len() as u64;
        let long = long_field(&[size, size]);
        let short = if long.is_empty() { size as u32 } else { IN_LONG_FIELD };
        let name_length = name.len() as u16;
        let unpadded = self.at + 30 + name.len() as u64 + long.len() as u64 + 4;
        let padding = unpadded.next_multiple_of(64) - unpadded;
        let mut extra = long;
        extra.extend_from_slice(b"FB");
        extra.extend_from_slice(&(padding as u16).to_le_bytes());
        extra.resize(extra.len() + padding as usize, b'Z');

        let mut facts = Vec::new();
        facts.extend_from_slice(&VERSION.to_le_bytes());
        // No flags, stored, no time.
        facts.extend_from_slice(&[0; 8]);
        for number in [crc, short, short] {
            facts.extend_from_slice(&number.to_le_bytes());
        }
        facts.extend_from_slice(&name_length.to_le_bytes());
        let extra_length = (extra.len() as u16).to_le_bytes();
        for part in [b"PK\x03\x04", &facts[..], &extra_length, name.as_bytes(), &extra, bytes] {
            self.out.write_all(part)?;
        }
        self.list(name, &facts, size);
        self.at += 30 + name.len() as u64 + extra.len() as u64 + size;
        Ok(())
    }

    fn list(&mut self, name: &str, facts: &[u8], size: u64) {
        let is_long = size >= u64::from(IN_LONG_FIELD) || self.at >= u64::from(IN_LONG_FIELD);
        let sizes = if size >= u64::from(IN_LONG_FIELD) { &[size, size][..] } else { &[] };
        let place = if self.at >= u64::from(IN_LONG_FIELD) { &[self.at][..] } else { &[] };
        let extra = if is_long { field(&[sizes, place].concat()) } else { Vec::new() };
        let at = u32::try_from(self.at).unwrap_or(IN_LONG_FIELD);
        let parts: [&[u8]; 8] = [
            b"PK\x01\x02",
            &VERSION.to_le_bytes(),
            facts,
            &(extra.len() as u16).to_le_bytes(),
            // No comment, first disk, no attributes.
            &[0; 10],
            &at.to_le_bytes(),
            name.as_bytes(),
            &extra,
        ];
        self.directory.extend_from_slice(&parts.concat());
        self.entries += 1;
    }

    /// Writes the directory.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let (begin, length) = (self.at, self.directory.len() as u64);
        self.out.write_all(&self.directory)?;
        let fits = |number: u64| number < u64::from(IN_LONG_FIELD);
        if !(fits(begin) && fits(length) && self.entries < 0xffff) {
            let mut long = b"PK\x06\x06".to_vec();
            long.extend_from_slice(&44u64.to_le_bytes());
            long.extend_from_slice(&[VERSION.to_le_bytes(), VERSION.to_le_bytes()].concat());
            long.extend_from_slice(&[0; 8]);
            for number in [self.entries, self.entries, length, begin] {
                long.extend_from_slice(&number.to_le_bytes());
            }
            long.extend_from_slice(b"PK\x06\x07\0\0\0\0");
            long.extend_from_slice(&(begin + length).to_le_bytes());
            long.extend_from_slice(&1u32.to_le_bytes());
            self.out.write_all(&long)?;
        }
        let entries = u16::try_from(self.entries).unwrap_or(u16::MAX).to_le_bytes();
        let short = |number: u64| u32::try_from(number).unwrap_or(IN_LONG_FIELD).to_le_bytes();
        let parts: [&[u8]; 6] = [b"PK\x05\x06\0\0\0\0", &entries, &entries, &short(length), &short(begin), &[0, 0]];
        self.out.write_all(&parts.concat())?;
        self.out.flush()
    }
}

/// The field of 64-bit sizes, empty if all fit into 32 bits.
fn long_field(sizes: &[u64]) -> Vec<u8> {
    if sizes.iter().all(|&size| size < u64::from(IN_LONG_FIELD)) { Vec::new() } else { field(sizes) }
}

fn field(numbers: &[u64]) -> Vec<u8> {
    let mut field = vec![1, 0];
    field.extend_from_slice(&((numbers.len() * 8) as u16).to_le_bytes());
    field.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    field
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::FileBytes;
    use crate::zip;

    #[test]
    fn entries_beyond_four_gigabytes_are_found_again() {
        let begin = 5u64 << 30;
        let mut written = Vec::new();
        let mut archive = Archive::new(&mut written);
        // As if so much had been written before; the file has a hole there.
        archive.at = begin;
        archive.entry("archive/a", b"one").unwrap();
        archive.entry("archive/b", b"three").unwrap();
        archive.finish().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("large");
        let file = std::fs::File::create(&path).unwrap();
        file.write_all_at(&written, begin).unwrap();
        let bytes = FileBytes::open(&path).unwrap();
        let entries = zip::entries(&bytes).unwrap();
        let found: Vec<(&str, &[u8])> = entries
            .iter()
            .map(|entry| {
                let (from, length) = entry.place(&bytes).unwrap();
                assert_eq!(from % 64, 0, "aligned");
                (entry.name.as_str(), &bytes[from as usize..][..length as usize])
            })
            .collect();
        assert_eq!(found, [("archive/a", &b"one"[..]), ("archive/b", b"three")]);
    }
}
