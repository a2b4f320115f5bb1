//! The index of a record file: names and places, never the values themselves.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use foldhash::fast::FixedState;

use super::record::{FRAME_HEAD, FrameContent, MAGIC, read};
use super::text::Hole;

/// The size of a read.
const CHUNK: usize = 1 << 20;

/// A range of a record file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) at: u64,
    pub(super) length: u32,
}

/// One entry of the documents.
#[derive(Debug, Default)]
pub(super) struct Indexed {
    pub(super) name: Box<str>,
    /// The entry's position among the others.
    pub(super) order: u64,
    /// By number of the key, in the order of the entry.
    pub(super) parts: Vec<(u32, Piece)>,
    pub(super) node: Option<(Option<Box<str>>, Option<u32>)>,
}

/// A call stack and the entries with it.
#[derive(Debug, Default)]
pub(super) struct IndexedStack {
    pub(super) lines: Piece,
    pub(super) entries: Vec<u32>,
}

/// The contents of a record file by place. Memory: about 200 bytes for each entry.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) header: Vec<u8>,
    pub(super) entries: Vec<Indexed>,
    /// The numbers of the entries in the order of the document.
    pub(super) in_order: Vec<u32>,
    /// Every key of a part, once.
    pub(super) keys: Vec<Box<str>>,
    /// The nodes in the order of their records.
    pub(super) nodes: Vec<u32>,
    pub(super) stacks: Vec<(u32, IndexedStack)>,
    pub(super) fills: HashMap<Hole, Piece, FixedState>,
    /// The number of bytes of an incomplete last frame.
    pub(super) torn: u64,
    by_name: HashMap<Box<str>, u32, FixedState>,
    by_key: HashMap<Box<str>, u32, FixedState>,
    by_stack: HashMap<u32, usize, FixedState>,
}

impl Index {
    /// Reads a record file up to its end or its first incomplete frame. `None` if it is not a record file.
    ///
    /// Time is linear in the file; one frame is in memory at a time.
    pub(super) fn of(file: &File) -> std::io::Result<Option<Self>> {
        let mut index = Self::default();
        let mut magic = [0; MAGIC.len()];
        match file.read_exact_at(&mut magic, 0) {
            Ok(()) if &magic == MAGIC => {}
            Ok(()) => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let mut frames =
            FrameReader { file, at: MAGIC.len() as u64, end: file.metadata()?.len(), buffer: Vec::new(), from: 0 };
        let mut whole = frames.at;
        while let Some((at, content)) = frames.next()? {
            let Some(said) = read(content) else { break };
            index.take(said, content, at);
            whole = at + content.len() as u64;
        }
        index.torn = torn_after(file, whole, frames.end)?;
        if index.header.is_empty() {
            return Ok(None);
        }
        let mut orders: Vec<u32> = (0..index.entries.len() as u32).collect();
        orders.sort_unstable_by_key(|&entry| index.entries[entry as usize].order);
        index.in_order = orders;
        Ok(Some(index))
    }

    fn take(&mut self, said: FrameContent<'_>, content: &[u8], at: u64) {
        let piece = |text: &[u8]| Piece {
            // Both are parts of one buffer.
            at: at + (text.as_ptr().addr() - content.as_ptr().addr()) as u64,
            length: text.len() as u32,
        };
        match said {
            FrameContent::Header(json) => self.header = json.to_vec(),
            FrameContent::Stack(number, lines) => self.stack(number).lines = piece(lines),
            FrameContent::Fills(fills) => self.fills.extend(fills.into_iter().map(|(hole, text)| (hole, piece(text)))),
            FrameContent::Entry(said) => {
                let number = self.entry(said.name, at);
                if let Some(stack) = said.stack {
                    self.stack(stack).entries.push(number);
                }
                if let Some(node) = said.node {
                    if self.entries[number as usize].node.is_none() {
                        self.nodes.push(number);
                    }
                    self.entries[number as usize].node = Some((node.parent.map(Box::from), node.micro_step));
                }
                if said.moves_to_end {
                    self.entries[number as usize].order = at;
                }
                for (key, text) in said.parts {
                    let key = self.key(key);
                    let parts = &mut self.entries[number as usize].parts;
                    match parts.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, known)) => *known = piece(text),
                        None => parts.push((key, piece(text))),
                    }
                }
            }
        }
    }

    fn entry(&mut self, name: &str, order: u64) -> u32 {
        if let Some(&known) = self.by_name.get(name) {
            return known;
        }
        let number = self.entries.len() as u32;
        self.entries.push(Indexed { name: name.into(), order, ..Indexed::default() });
        self.by_name.insert(name.into(), number);
        number
    }

    fn key(&mut self, key: &str) -> u32 {
        if let Some(&known) = self.by_key.get(key) {
            return known;
        }
        let number = self.keys.len() as u32;
        self.keys.push(key.into());
        self.by_key.insert(key.into(), number);
        number
    }

    fn stack(&mut self, number: u32) -> &mut IndexedStack {
        let place = *self.by_stack.entry(number).or_insert_with(|| {
            self.stacks.push((number, IndexedStack::default()));
            self.stacks.len() - 1
        });
        &mut self.stacks[place].1
    }
}

/// The number of bytes of the incomplete frame that begins at `whole`. A file that was mapped memory ends in zeros,
/// which do not count.
fn torn_after(file: &File, whole: u64, end: u64) -> std::io::Result<u64> {
    let left = end - whole;
    let mut head = [0; FRAME_HEAD];
    let there = left.min(FRAME_HEAD as u64) as usize;
    file.read_exact_at(&mut head[..there], whole)?;
    if head == [0; FRAME_HEAD] {
        return Ok(0);
    }
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    Ok(left.min(FRAME_HEAD as u64 + u64::from(length)))
}

/// Reads frames one after the other.
struct FrameReader<'f> {
    file: &'f File,
    /// The position of the buffer's unread part in the file.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    /// The end of the buffer's read part.
    from: usize,
}

impl FrameReader<'_> {
    /// The next frame's content and its place; `None` at the end or at an incomplete frame.
    fn next(&mut self) -> std::io::Result<Option<(u64, &[u8])>> {
        if !self.have(FRAME_HEAD)? {
            return Ok(None);
        }
        let head = &self.buffer[self.from..self.from + FRAME_HEAD];
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (length, crc) = (number(0) as usize, number(4));
        if !self.have(FRAME_HEAD + length)? {
            return Ok(None);
        }
        let content = self.from + FRAME_HEAD..self.from + FRAME_HEAD + length;
        if crc32fast::hash(&self.buffer[content.clone()]) != crc {
            return Ok(None);
        }
        let at = self.at + FRAME_HEAD as u64;
        self.from = content.end;
        self.at = at + length as u64;
        Ok(Some((at, &self.buffer[content])))
    }

    /// Reads `count` bytes into the buffer; returns whether the file has that many.
    fn have(&mut self, count: usize) -> std::io::Result<bool> {
        if self.buffer.len() - self.from >= count {
            return Ok(true);
        }
        // A length beyond the file's end is invalid: no memory is allocated for it.
        if self.end.saturating_sub(self.at) < count as u64 {
            return Ok(false);
        }
        self.buffer.drain(..self.from);
        self.from = 0;
        let known = self.buffer.len();
        let wanted = (self.end - self.at).min(count.max(CHUNK) as u64) as usize;
        self.buffer.resize(wanted, 0);
        self.file.read_exact_at(&mut self.buffer[known..], self.at + known as u64)?;
        Ok(true)
    }
}
