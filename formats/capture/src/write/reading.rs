//! Reads the pieces of a record file in the order of the documents.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::index::Piece;

/// The size of a read where pieces are adjacent.
const AHEAD: usize = 1 << 16;

/// Reads pieces. Most are adjacent, so one call reads several.
#[derive(Default)]
pub(super) struct Reading {
    ahead: Vec<u8>,
    /// The position of these bytes in the file.
    at: u64,
    /// A piece before these bytes, of an entry that moved to the end.
    alone: Vec<u8>,
    has_begun: bool,
}

impl Reading {
    /// The bytes of a piece.
    pub(super) fn piece(&mut self, records: &File, piece: Piece) -> io::Result<&[u8]> {
        let length = piece.length as usize;
        // A single piece may be all that is read.
        if !std::mem::replace(&mut self.has_begun, true) || piece.at < self.at {
            self.alone.resize(length, 0);
            records.read_exact_at(&mut self.alone, piece.at)?;
            return Ok(&self.alone);
        }
        if piece.at + length as u64 > self.at + self.ahead.len() as u64 {
            self.ahead.resize(length.max(AHEAD), 0);
            let read = read_up_to(records, &mut self.ahead, piece.at)?;
            self.ahead.truncate(read);
            self.at = piece.at;
        }
        let from = (piece.at - self.at) as usize;
        self.ahead.get(from..from + length).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Fills the buffer up to the end of the file.
fn read_up_to(file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < to.len() {
        match file.read_at(&mut to[read..], at + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
