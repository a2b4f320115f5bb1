//! Appends frames to one region of the file.

use super::error::JournalError;
use super::frame::{FrameHeader, FrameKind, GRAIN, NO_FRAME, total};
use super::layout::Region;
use super::medium::Medium;

/// The writing end of a region. A log stops at its end, a ring continues at the beginning: the caller checks
/// [`fits_log`](Self::fits_log) or [`fits_ring`](Self::fits_ring) first.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionWriter {
    region: Region,
    /// The position of the next frame, counted continuously.
    end: u64,
    /// The number of frames so far.
    next_seq: u64,
    prev_at: u64,
}

/// The header fields that describe a frame's content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) kind: FrameKind,
    pub(super) step: u64,
    pub(super) records: u32,
}

impl RegionWriter {
    pub(super) fn new(region: Region) -> Self {
        Self { region, end: 0, next_seq: 0, prev_at: NO_FRAME }
    }

    pub(super) fn length(&self) -> u64 {
        self.region.length
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The position after a frame with this much content.
    pub(super) fn end_after(&self, content: usize) -> u64 {
        self.end + total(content as u64)
    }

    /// The position before which data is overwritten by a frame with this much content.
    pub(super) fn floor_after(&self, content: usize) -> u64 {
        self.end_after(content).saturating_sub(self.region.length)
    }

    pub(super) fn fits_log(&self, content: usize) -> bool {
        u32::try_from(content).is_ok() && self.end_after(content) <= self.region.length
    }

    pub(super) fn fits_ring(&self, content: usize) -> bool {
        u32::try_from(content).is_ok() && total(content as u64) <= self.region.length
    }

    /// Writes a frame that fits and returns its header. If the process ends in between, the frame is either intact or
    /// recognizably not: the header at its position is erased first, and the new one is written last.
    pub(super) fn append(
        &mut self,
        medium: &Medium,
        journal: u64,
        label: Label,
        content: &[u8],
    ) -> Result<FrameHeader, JournalError> {
        let Label { kind, step, records } = label;
        let header = FrameHeader {
            kind,
            journal,
            seq: self.next_seq,
            at: self.end,
            prev_at: self.prev_at,
            step,
            length: content.len() as u32,
            content_crc: crc32fast::hash(content),
            records,
        };
        medium.write(self.offset(header.at), &[0; GRAIN as usize])?;
        self.write_around(medium, header.at + GRAIN, content)?;
        medium.write(self.offset(header.at), &header.encode())?;
        self.end += header.total();
        self.next_seq += 1;
        self.prev_at = header.at;
        Ok(header)
    }

    /// Reads the content of a frame that was not overwritten.
    pub(super) fn read(&self, medium: &Medium, header: &FrameHeader) -> Result<Vec<u8>, JournalError> {
        let mut content = vec![0; header.length as usize];
        let until_end = self.until_end(header.at + GRAIN).min(content.len());
        let (first, rest) = content.split_at_mut(until_end);
        medium.read(self.offset(header.at + GRAIN), first)?;
        medium.read(self.region.offset, rest)?;
        Ok(content)
    }

    fn write_around(&self, medium: &Medium, at: u64, content: &[u8]) -> Result<(), JournalError> {
        let (first, rest) = content.split_at(self.until_end(at).min(content.len()));
        medium.write(self.offset(at), first)?;
        medium.write(self.region.offset, rest)
    }

    fn offset(&self, at: u64) -> u64 {
        self.region.offset + at % self.region.length
    }

    fn until_end(&self, at: u64) -> usize {
        usize::try_from(self.region.length - at % self.region.length).unwrap_or(usize::MAX)
    }
}
