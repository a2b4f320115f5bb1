//! The layout of the file.

use trainmon_core::Rank;

use super::bytes::{ByteSink as _, u32_at, u64_at};
use super::error::HeaderFault;

/// The extension of journal files.
pub const FILE_EXTENSION: &str = "tmj";
/// The size of the smallest file: a page for the header, one for the state, some for the run's description, names and
/// alerts, and a ring.
pub const MIN_FILE_BYTES: u64 = 128 << 10;

/// The alignment of regions: a page, so that frequently written data shares no page with data that is written once.
pub(super) const PAGE: u64 = 4096;
const MAGIC: [u8; 16] = *b"trainmonJournal\n";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 120;
const CRC_AT: usize = HEADER_BYTES - 4;
/// The positions of the two copies of the state, half a page apart: in different sectors of the disk.
pub(super) const STATE_AT: [u64; 2] = [PAGE, PAGE + PAGE / 2];
const FACTS_AT: u64 = 2 * PAGE;
/// The share of names: in a file of 64 MiB, 4 MiB for about 40,000 tensors. Further names are written with every step
/// instead.
const NAMES_SHARE: u64 = 16;
/// The share of alerts: in a file of 64 MiB, 1 MiB, more than anyone reads.
const ALERTS_SHARE: u64 = 64;
const MAX_ALERTS: u64 = 1 << 20;
/// The smallest size of the regions of names and alerts.
const MIN_LOG: u64 = 4 * PAGE;

/// The file name of a rank's journal: `journal_rank3.tmj`, or `journal_rank3.2.tmj` if an earlier run left the first.
pub fn file_name(rank: Rank, number: u32) -> String {
    match number {
        0 | 1 => format!("journal_rank{rank}.{FILE_EXTENSION}"),
        number => format!("journal_rank{rank}.{number}.{FILE_EXTENSION}"),
    }
}

/// The number in a name that [`file_name`] returns for this rank; `None` for every other name.
pub(super) fn file_number(rank: Rank, name: &str) -> Option<u32> {
    let middle = name.strip_suffix(FILE_EXTENSION)?.strip_suffix('.')?.strip_prefix(&format!("journal_rank{rank}"))?;
    let number = if middle.is_empty() { 1 } else { middle.strip_prefix('.')?.parse().ok()? };
    (file_name(rank, number) == name).then_some(number)
}

/// A part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Region {
    fn end(self) -> Option<u64> {
        self.offset.checked_add(self.length)
    }
}

/// The layout in the file's first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// A number that identifies the journal.
    pub(super) journal: u64,
    pub(super) file_length: u64,
    /// The region of the run's description: its JSON, padded to a page.
    pub(super) facts: Region,
    pub(super) facts_crc: u32,
    pub(super) names: Region,
    pub(super) alerts: Region,
    pub(super) steps: Region,
}

impl Layout {
    /// Divides a file of about `bytes` (at least [`MIN_FILE_BYTES`], whole pages). A long description of the run makes
    /// it larger.
    pub(super) fn new(journal: u64, bytes: u64, facts: &[u8]) -> Self {
        let pages = |bytes: u64| bytes.next_multiple_of(PAGE);
        let bytes = pages(bytes.max(MIN_FILE_BYTES));
        let facts_region = Region { offset: FACTS_AT, length: facts.len() as u64 };
        let names =
            Region { offset: pages(FACTS_AT + facts_region.length), length: pages((bytes / NAMES_SHARE).max(MIN_LOG)) };
        let alerts_length = pages((bytes / ALERTS_SHARE).clamp(MIN_LOG, MAX_ALERTS));
        let alerts = Region { offset: names.offset + names.length, length: alerts_length };
        let steps_at = alerts.offset + alerts.length;
        let steps = Region { offset: steps_at, length: bytes.saturating_sub(steps_at).max(MIN_LOG) };
        Self {
            journal,
            file_length: steps.offset + steps.length,
            facts: facts_region,
            facts_crc: crc32fast::hash(facts),
            names,
            alerts,
            steps,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { journal, file_length, facts, facts_crc, names, alerts, steps } = *self;
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.put(&MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u32(HEADER_BYTES as u32);
        bytes.put_u64(journal);
        bytes.put_u64(file_length);
        for Region { offset, length } in [facts, names, alerts, steps] {
            bytes.put_u64(offset);
            bytes.put_u64(length);
        }
        bytes.put_u32(facts_crc);
        bytes.resize(CRC_AT, 0);
        let crc = crc32fast::hash(&bytes);
        bytes.put_u32(crc);
        bytes
    }

    /// Decodes the layout in a file's first bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        if bytes.is_empty() {
            return Err(HeaderFault::Empty);
        }
        let beginning = &bytes[..bytes.len().min(MAGIC.len())];
        if *beginning != MAGIC[..beginning.len()] {
            return Err(HeaderFault::NotAJournal);
        }
        if bytes.len() < HEADER_BYTES {
            return Err(HeaderFault::CutOff { expected: HEADER_READ as u64, length: bytes.len() as u64 });
        }
        let version = u32_at(bytes, 16);
        // A later version may place its checksum elsewhere: the version is checked before the checksum.
        let is_whole = crc32fast::hash(&bytes[..CRC_AT]) == u32_at(bytes, CRC_AT);
        match (is_whole, version) {
            (true, VERSION) => {}
            (false, VERSION) => return Err(HeaderFault::Damaged),
            (_, found) => return Err(HeaderFault::Version { found, known: VERSION }),
        }
        let region = |at: usize| Region { offset: u64_at(bytes, at), length: u64_at(bytes, at + 8) };
        let layout = Self {
            journal: u64_at(bytes, 24),
            file_length: u64_at(bytes, 32),
            facts: region(40),
            names: region(56),
            alerts: region(72),
            steps: region(88),
            facts_crc: u32_at(bytes, 104),
        };
        if layout.is_possible() { Ok(layout) } else { Err(HeaderFault::Damaged) }
    }

    fn is_possible(&self) -> bool {
        let inside = |region: &Region| region.length > 0 && region.end().is_some_and(|end| end <= self.file_length);
        let in_grains = |region: &Region| {
            region.offset.is_multiple_of(super::frame::GRAIN) && region.length.is_multiple_of(super::frame::GRAIN)
        };
        inside(&self.facts) && [&self.names, &self.alerts, &self.steps].into_iter().all(|r| inside(r) && in_grains(r))
    }
}

/// The number of bytes that [`Layout::decode`] requires.
pub(super) const HEADER_READ: usize = HEADER_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_follow_each_other_and_fill_the_file() {
        for bytes in [0, MIN_FILE_BYTES, 1 << 20, (64 << 20) + 1, 1 << 32] {
            let layout = Layout::new(5, bytes, &[b'x'; 5000]);
            assert_eq!(layout.names.offset, 4 * PAGE);
            assert_eq!(layout.alerts.offset, layout.names.offset + layout.names.length);
            assert_eq!(layout.steps.offset, layout.alerts.offset + layout.alerts.length);
            assert_eq!(layout.file_length, bytes.max(MIN_FILE_BYTES).next_multiple_of(PAGE));
            assert!(layout.steps.length * 4 > layout.file_length, "{layout:?}");
            assert_eq!(Layout::decode(&layout.encode()), Ok(layout));
        }
    }

    #[test]
    fn a_header_that_is_not_one_is_told_apart() {
        let bytes = Layout::new(5, 1 << 20, b"{}").encode();
        assert_eq!(Layout::decode(b""), Err(HeaderFault::Empty));
        assert_eq!(Layout::decode(b"step,loss\n"), Err(HeaderFault::NotAJournal));
        assert_eq!(Layout::decode(&bytes[..50]), Err(HeaderFault::CutOff { expected: HEADER_READ as u64, length: 50 }));
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Layout::decode(&flipped).is_err(), "bit {bit}");
        }
        let mut later = bytes;
        later[16] = 2;
        assert_eq!(Layout::decode(&later), Err(HeaderFault::Version { found: 2, known: 1 }));
    }
}
