//! Finds frames in the file of an ended process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::frame::{FrameHeader, FrameKind, GRAIN, NO_FRAME};
use super::layout::Region;

/// The size of a read; a multiple of the frames' alignment.
const CHUNK: usize = 1 << 20;

/// The content of a region according to the state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    /// The number of frames begun.
    pub(super) begun: u64,
    /// The position after the last frame.
    pub(super) end: u64,
}

/// The frames found in a region.
#[derive(Clone, Debug, Default)]
pub(super) struct ScannedRegion {
    /// Intact frames, oldest first, without gaps except those in `gaps`.
    pub(super) frames: Vec<FrameHeader>,
    /// Missing frames, oldest first.
    pub(super) gaps: Vec<Gap>,
}

/// A missing frame or range of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// A frame with an intact header and damaged content.
    Torn(FrameHeader),
    /// Frames without a trace, by number.
    Missing { first: u64, last: u64 },
    /// The newest frame was begun and is incomplete.
    Unfinished,
    /// Frames were written, and all are gone.
    NothingLeft { written: u64 },
}

/// A region of a file that may be truncated anywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionSource<'a> {
    pub(super) file: &'a File,
    pub(super) journal: u64,
    pub(super) region: Region,
}

impl RegionSource<'_> {
    /// Checks every position at which a frame may begin, and reports missing frames.
    pub(super) fn find(&self, kinds: &[FrameKind], written: Written) -> io::Result<ScannedRegion> {
        let headers = self.headers(kinds)?;
        let ends = headers.iter().map(|header| header.at.saturating_add(header.total()));
        let end = ends.fold(written.end, u64::max);
        let begun = headers.iter().map(|header| header.seq.saturating_add(1)).fold(written.begun, u64::max);
        // Frames that begin before this were overwritten, completely or in part, or were about to be.
        let floor = end.saturating_sub(self.region.length);
        let (mut whole, torn): (Vec<_>, Vec<_>) =
            headers.into_iter().partition(|header| self.content(header).is_some());
        whole.sort_by_key(|header| header.seq);
        let torn: Vec<FrameHeader> = torn.into_iter().filter(|header| header.at >= floor).collect();
        let frames = contiguous_tail(&whole, floor);
        let gaps = gaps(&frames, &torn, begun, floor);
        Ok(ScannedRegion { frames, gaps })
    }

    /// A frame's content, if it matches the header.
    pub(super) fn content(&self, header: &FrameHeader) -> Option<Vec<u8>> {
        // Checked before memory is allocated: a file may be truncated, and a header forged.
        let until = self.region.offset.checked_add(u64::from(header.length))?;
        if until > self.file.metadata().ok()?.len() {
            return None;
        }
        let mut content = vec![0; header.length as usize];
        let place = header.at.checked_add(GRAIN)? % self.region.length;
        let until_end = usize::try_from(self.region.length - place).ok()?.min(content.len());
        let (first, rest) = content.split_at_mut(until_end);
        self.file.read_exact_at(first, self.region.offset.checked_add(place)?).ok()?;
        self.file.read_exact_at(rest, self.region.offset).ok()?;
        (crc32fast::hash(&content) == header.content_crc).then_some(content)
    }

    fn headers(&self, kinds: &[FrameKind]) -> io::Result<Vec<FrameHeader>> {
        let mut headers = Vec::new();
        let mut chunk = vec![0; CHUNK];
        let mut place = 0;
        while place < self.region.length {
            let wanted = usize::try_from(self.region.length - place).unwrap_or(CHUNK).min(CHUNK);
            let read = read_up_to(self.file, self.region.offset + place, &mut chunk[..wanted])?;
            for (slot, bytes) in (0u64..).zip(chunk[..read].chunks_exact(GRAIN as usize)) {
                let header = FrameHeader::decode(bytes, self.journal).filter(|header| {
                    let is_here = header.at % self.region.length == place + slot * GRAIN;
                    is_here && header.total() <= self.region.length && kinds.contains(&header.kind)
                });
                headers.extend(header);
            }
            if read < wanted {
                break;
            }
            place += read as u64;
        }
        Ok(headers)
    }
}

/// The newest frames and the older ones before them without a gap in the numbers. Partly overwritten frames are not
/// intact; frames that were about to be overwritten may be, and count.
fn contiguous_tail(whole: &[FrameHeader], floor: u64) -> Vec<FrameHeader> {
    let first_live = whole.iter().position(|header| header.at >= floor).unwrap_or(whole.len());
    let is_next = |pair: &[FrameHeader]| pair[0].seq.checked_add(1) == Some(pair[1].seq);
    // Without a live frame, the newest of the others begins the tail.
    let mut first = first_live.min(whole.len().saturating_sub(1));
    while first > 0 && is_next(&whole[first - 1..=first]) {
        first -= 1;
    }
    whole[first..].to_vec()
}

/// The frames missing after the oldest frame that should exist.
fn gaps(frames: &[FrameHeader], torn: &[FrameHeader], begun: u64, floor: u64) -> Vec<Gap> {
    let Some(oldest) = frames.iter().chain(torn).min_by_key(|header| header.seq) else {
        return match begun {
            0 => Vec::new(),
            1 => vec![Gap::Unfinished],
            written => vec![Gap::NothingLeft { written }],
        };
    };
    let mut gaps = Vec::new();
    if oldest.prev_at != NO_FRAME && oldest.prev_at >= floor {
        let before = oldest.seq.saturating_sub(1);
        gaps.push(Gap::Missing { first: before, last: before });
    }
    let mut known = frames.iter().map(|header| (header.seq, None)).collect::<Vec<_>>();
    known.extend(torn.iter().map(|header| (header.seq, Some(Gap::Torn(*header)))));
    known.sort_by_key(|(seq, _)| *seq);
    let mut next = oldest.seq;
    for (seq, gap) in known {
        if seq > next {
            gaps.push(Gap::Missing { first: next, last: seq - 1 });
        }
        gaps.extend(gap);
        next = seq.saturating_add(1);
    }
    if next.saturating_add(1) < begun {
        gaps.push(Gap::Missing { first: next, last: begun - 2 });
    }
    if next < begun {
        gaps.push(Gap::Unfinished);
    }
    gaps
}

/// Steps without a frame: the first and last of each gap. Every step of a run has a frame, measured or not. If two
/// steps are farther apart than their frames, the steps between them were never written.
pub(super) fn never_written(known: impl IntoIterator<Item = FrameHeader>) -> Vec<(u64, u64)> {
    let mut known: Vec<FrameHeader> = known.into_iter().collect();
    known.sort_by_key(|header| header.seq);
    let apart = |one: u64, other: u64| other.saturating_sub(one);
    let pairs = known.windows(2).map(|pair| (pair[0], pair[1]));
    let gap = |(one, other): &(FrameHeader, FrameHeader)| apart(one.step, other.step) > apart(one.seq, other.seq);
    pairs.filter(gap).map(|(one, other)| (one.step + 1, other.step - 1)).collect()
}

/// Fills the buffer up to the end of the file.
pub(super) fn read_up_to(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(seq: u64) -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Step,
            journal: 0,
            seq,
            at: seq * 100,
            prev_at: if seq == 0 { NO_FRAME } else { (seq - 1) * 100 },
            step: seq,
            length: 1,
            content_crc: 0,
            records: 0,
        }
    }

    fn frames(seqs: impl IntoIterator<Item = u64>) -> Vec<FrameHeader> {
        seqs.into_iter().map(frame).collect()
    }

    #[test]
    fn an_older_frame_counts_as_long_as_no_number_is_left_out() {
        let tail = |seqs: &[u64], floor| -> Vec<u64> {
            contiguous_tail(&frames(seqs.iter().copied()), floor).iter().map(|header| header.seq).collect()
        };
        assert_eq!(tail(&[1, 3, 4, 5, 6], 500), [3, 4, 5, 6]);
        assert_eq!(tail(&[1, 3, 4, 6], 600), [6]);
        assert_eq!(tail(&[1, 3, 4], 900), [3, 4]);
        assert_eq!(tail(&[4, 6], 0), [4, 6]);
        assert_eq!(tail(&[], 0), [0; 0]);
    }

    #[test]
    fn steps_that_were_never_written_are_told_from_frames_that_are_gone() {
        let frames = |steps: &[(u64, u64)]| -> Vec<FrameHeader> {
            steps.iter().map(|&(seq, step)| FrameHeader { step, ..frame(seq) }).collect()
        };
        assert_eq!(never_written(frames(&[])), []);
        assert_eq!(never_written(frames(&[(4, 100), (5, 101), (6, 102)])), []);
        assert_eq!(never_written(frames(&[(6, 44), (5, 16), (4, 15), (7, 46)])), [(17, 43), (45, 45)]);
        // Two frames are gone and have their own word; of the other numbers there never was one.
        assert_eq!(never_written(frames(&[(4, 4), (7, 7)])), []);
        assert_eq!(never_written(frames(&[(4, 4), (7, 9)])), [(5, 8)]);
        // Whatever a number says, nothing overflows.
        assert_eq!(never_written(frames(&[(0, u64::MAX), (1, 0), (2, u64::MAX)])), [(1, u64::MAX - 1)]);
    }

    #[test]
    fn whatever_should_be_there_and_is_not_is_told() {
        let gaps = |seqs: &[u64], torn: &[u64], begun, floor| {
            gaps(&frames(seqs.iter().copied()), &frames(torn.iter().copied()), begun, floor)
        };
        assert_eq!(gaps(&[3, 4, 5], &[], 6, 300), []);
        assert_eq!(gaps(&[3, 4, 5], &[], 7, 300), [Gap::Unfinished]);
        assert_eq!(gaps(&[3, 4, 5], &[], 9, 300), [Gap::Missing { first: 6, last: 7 }, Gap::Unfinished]);
        assert_eq!(gaps(&[4, 5], &[], 6, 300), [Gap::Missing { first: 3, last: 3 }]);
        assert_eq!(
            gaps(&[4, 7], &[3, 5], 8, 300),
            [Gap::Torn(frame(3)), Gap::Torn(frame(5)), Gap::Missing { first: 6, last: 6 }]
        );
        assert_eq!(gaps(&[], &[], 0, 0), []);
        assert_eq!(gaps(&[], &[], 1, 0), [Gap::Unfinished]);
        assert_eq!(gaps(&[], &[], 8, 300), [Gap::NothingLeft { written: 8 }]);
    }
}
