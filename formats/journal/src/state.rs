//! The counts of the frames that the file should hold. Two copies are written in turn: one of them is intact whenever
//! the process ends.
//!
//! No frame is located through the state: it only lets a reader detect that the newest frames are missing.

use super::bytes::{u32_at, u64_at};

/// The size of a copy in bytes.
pub(super) const STATE_BYTES: usize = 104;
const MAGIC: [u8; 4] = *b"TMJs";
const FIELDS_AT: usize = 16;

/// The writer's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The number of writes of the state: the copy with the larger number is newer.
    pub(super) generation: u64,
    /// The number of step frames begun, and the position after the last one.
    pub(super) steps_begun: u64,
    pub(super) steps_end: u64,
    /// The number of alert frames begun, and the position after the last one.
    pub(super) alerts_begun: u64,
    pub(super) alerts_end: u64,
    /// The number of name frames begun, and the position after the last one.
    pub(super) names_begun: u64,
    pub(super) names_end: u64,
    /// Steps that were too large for the ring, and their records.
    pub(super) lost_steps: u64,
    pub(super) lost_records: u64,
    /// 1 once the writer was closed cleanly.
    pub(super) closed: u64,
}

impl State {
    fn fields(&self) -> [u64; 10] {
        let Self {
            generation,
            steps_begun,
            steps_end,
            alerts_begun,
            alerts_end,
            names_begun,
            names_end,
            lost_steps,
            lost_records,
            closed,
        } = *self;
        [
            generation,
            steps_begun,
            steps_end,
            alerts_begun,
            alerts_end,
            names_begun,
            names_end,
            lost_steps,
            lost_records,
            closed,
        ]
    }

    pub(super) fn encode(&self, journal: u64) -> [u8; STATE_BYTES] {
        let mut bytes = [0; STATE_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&journal.to_le_bytes());
        for (place, value) in (FIELDS_AT..).step_by(8).zip(self.fields()) {
            bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8], journal: u64) -> Option<Self> {
        if bytes.len() < STATE_BYTES || bytes[..4] != MAGIC || u64_at(bytes, 8) != journal {
            return None;
        }
        if crc32fast::hash(&bytes[8..STATE_BYTES]) != u32_at(bytes, 4) {
            return None;
        }
        let mut fields = (FIELDS_AT..).step_by(8).map(|place| u64_at(bytes, place));
        let mut next = || fields.next().unwrap_or_default();
        Some(Self {
            generation: next(),
            steps_begun: next(),
            steps_end: next(),
            alerts_begun: next(),
            alerts_end: next(),
            names_begun: next(),
            names_end: next(),
            lost_steps: next(),
            lost_records: next(),
            closed: next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_back_and_any_flipped_bit_is_noticed() {
        let state = State { generation: 1, steps_begun: 2, names_end: 7, closed: 1, ..State::default() };
        let bytes = state.encode(9);
        assert_eq!(State::decode(&bytes, 9), Some(state));
        assert_eq!(State::decode(&bytes, 8), None);
        for bit in 0..8 * STATE_BYTES {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(State::decode(&flipped, 9), None, "bit {bit}");
        }
    }
}
