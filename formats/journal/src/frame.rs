//! A frame: a header of 64 bytes, then the content. Each has its own checksum, so that the header still identifies the
//! step of a frame with damaged content.

use super::bytes::{u32_at, u64_at};

/// The alignment of frames and the length of their headers: no header crosses a ring's end.
pub(super) const GRAIN: u64 = 64;
const HEADER: usize = GRAIN as usize;
const MAGIC: [u8; 4] = *b"TMJf";
/// The offset of the header's own checksum, which covers everything before it.
const CRC_AT: usize = 60;
/// `prev_at` of a region's first frame.
pub(super) const NO_FRAME: u64 = u64::MAX;

/// A limit for frame and byte counts that no writer reaches; sums of such numbers do not overflow.
const MAX_COUNT: u64 = 1 << 60;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// Names of tensors.
    Names,
    /// An alert, as its producer wrote it.
    Alert,
    /// A step.
    Step,
    /// A step that was too large for the ring: its number and the number of lost records.
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
    /// The journal's number: frames that an earlier file left on the disk have another.
    pub(super) journal: u64,
    /// The frame's number in its region, from 0, without gaps.
    pub(super) seq: u64,
    /// The position of the frame, counted continuously from the region's first byte; in the file it is `at % region
    /// length`.
    pub(super) at: u64,
    /// The position of the previous frame; [`NO_FRAME`] for the first.
    pub(super) prev_at: u64,
    /// The step; in a frame of names, the first tensor's id.
    pub(super) step: u64,
    /// The number of content bytes.
    pub(super) length: u32,
    /// CRC-32 of the content.
    pub(super) content_crc: u32,
    /// The number of records in a step, of names in a frame of names, 0 for an alert.
    pub(super) records: u32,
}

impl FrameHeader {
    /// The size of the frame, including header and padding.
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

    /// Decodes a header from 64 bytes, if they are a valid one of this journal.
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

    /// Whether a writer can have written these numbers. A header may be forged, including its checksum: later code
    /// relies on this check.
    fn is_possible(&self) -> bool {
        let is_in_order = self.prev_at == NO_FRAME || (self.seq > 0 && self.prev_at < self.at);
        is_in_order && self.seq <= MAX_COUNT && self.at <= MAX_COUNT && self.at.is_multiple_of(GRAIN)
    }
}

/// The size of a frame with this much content.
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
