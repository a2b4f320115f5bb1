//! A frame: a header of 64 bytes, then the content. Both have a checksum of their own, so that of a frame whose content
//! is torn the header still tells which step it was.

use super::bytes::{u32_at, u64_at};

/// Frames begin at multiples of this, and their headers are this long: none runs over a ring's end.
pub(super) const GRAIN: u64 = 64;
const HEADER: usize = GRAIN as usize;
const MAGIC: [u8; 4] = *b"TMJf";
/// Where the header's own checksum stands, over everything before it.
const CRC_AT: usize = 60;
/// `prev_at` of a region's first frame.
pub(super) const NO_FRAME: u64 = u64::MAX;

/// No writer counts frames, or their bytes, this far; sums of such numbers do not overflow.
const MAX_COUNT: u64 = 1 << 60;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// Names of tensors.
    Names,
    /// An alert, as its producer wrote it.
    Alert,
    /// A step.
    Step,
    /// A step that was too large for the ring: its number and how many records are lost.
    LostStep,
}

impl FrameKind {
    const fn code(self) -> u32 {
        match self {
            Self::Names => 1,
            Self::Alert => 2,
            Self::Step => 3,
            Self::LostStep => 4,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        [Self::Names, Self::Alert, Self::Step, Self::LostStep].into_iter().find(|kind| kind.code() == code)
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) kind: FrameKind,
    /// Which journal it belongs to: what an earlier file left on the disk has another.
    pub(super) journal: u64,
    /// The frame's number in its region, from 0, without gaps.
    pub(super) seq: u64,
    /// Where it begins, counted from the region's first byte on without end; in the file it is `at % region length`.
    pub(super) at: u64,
    /// Where the frame before it begins; [`NO_FRAME`] for the first.
    pub(super) prev_at: u64,
    /// The step; for names the first tensor's id.
    pub(super) step: u64,
    /// Bytes of content.
    pub(super) length: u32,
    /// CRC-32 of the content.
    pub(super) content_crc: u32,
    /// Records of a step, names in a names frame, 0 for an alert.
    pub(super) records: u32,
}

impl FrameHeader {
    /// Bytes the frame takes, header and padding included.
    pub(super) fn total(&self) -> u64 {
        total(u64::from(self.length))
    }

    pub(super) fn encode(&self) -> [u8; HEADER] {
        let Self { kind, journal, seq, at, prev_at, step, length, content_crc, records } = *self;
        let mut bytes = [0; HEADER];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&kind.code().to_le_bytes());
        for (place, value) in (8..).step_by(8).zip([journal, seq, at, prev_at, step]) {
            bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
        }
        for (place, value) in (48..).step_by(4).zip([length, content_crc, records]) {
            bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header in these 64 bytes, if there is a whole one of this journal.
    pub(super) fn decode(bytes: &[u8], of_journal: u64) -> Option<Self> {
        if bytes.len() < HEADER || bytes[..4] != MAGIC || u64_at(bytes, 8) != of_journal {
            return None;
        }
        if crc32fast::hash(&bytes[..CRC_AT]) != u32_at(bytes, CRC_AT) {
            return None;
        }
        let header = Self {
            kind: FrameKind::from_code(u32_at(bytes, 4))?,
            journal: of_journal,
            seq: u64_at(bytes, 16),
            at: u64_at(bytes, 24),
            prev_at: u64_at(bytes, 32),
            step: u64_at(bytes, 40),
            length: u32_at(bytes, 48),
            content_crc: u32_at(bytes, 52),
            records: u32_at(bytes, 56),
        };
        header.is_possible().then_some(header)
    }

    /// Whether a writer can have come so far. A header may be made up, checksum and all: what follows may count on it.
    fn is_possible(&self) -> bool {
        let is_in_order = self.prev_at == NO_FRAME || (self.seq > 0 && self.prev_at < self.at);
        is_in_order && self.seq <= MAX_COUNT && self.at <= MAX_COUNT && self.at.is_multiple_of(GRAIN)
    }
}

/// Bytes a frame with this much content takes.
pub(super) const fn total(content: u64) -> u64 {
    (GRAIN + content).next_multiple_of(GRAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_any_flipped_bit_is_noticed() {
        let header = FrameHeader {
            kind: FrameKind::Step,
            journal: 0x1234_5678_9abc_def0,
            seq: 7,
            at: 640,
            prev_at: NO_FRAME,
            step: 12,
            length: 100,
            content_crc: 99,
            records: 3,
        };
        let bytes = header.encode();
        assert_eq!(FrameHeader::decode(&bytes, header.journal), Some(header));
        assert_eq!(FrameHeader::decode(&bytes, 1), None);
        assert_eq!(header.total(), 192);
        for bit in 0..8 * HEADER {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&flipped, header.journal), None, "bit {bit}");
        }
    }
}
