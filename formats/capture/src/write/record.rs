//! Encodes and decodes the record file's frames.
//!
//! ```text
//! file   "trainmon capture" (16 bytes), then frames to the end
//! frame  length of the content u32 │ CRC-32 of the content u32 │ content
//! content  kind u8, then, numbers little-endian, texts with their length u32 before them:
//!     1 header  JSON
//!     2 entry   name │ flags u8 │ [parent] │ [micro step u32] │ [stack u32] │ parts u32 │ (key, JSON)…
//!     3 stack   number u32 │ JSON: the list of its lines
//!     4 fills   count u32 │ (hole u32, JSON)…
//! ```

use super::text::Hole;

/// The first bytes of a record file.
pub(super) const MAGIC: &[u8; 16] = b"trainmon capture";
/// The number of bytes before a frame's content.
pub(super) const FRAME_HEAD: usize = 8;

const HEADER: u8 = 1;
const ENTRY: u8 = 2;
const STACK: u8 = 3;
const FILLS: u8 = 4;

/// The entry moves to the end of the document.
const MOVES: u8 = 1;
/// The entry is in `construct.json`.
const HAS_NODE: u8 = 2;
/// The entry has a parent.
const HAS_PARENT: u8 = 4;
/// The entry has a micro step.
const HAS_MICRO_STEP: u8 = 8;
/// The entry has a stack.
const HAS_STACK: u8 = 16;

/// The place of an entry in `construct.json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node<'r> {
    /// The parent module; `None` at the root.
    pub parent: Option<&'r str>,
    /// The micro-batch, if the framework provides it.
    pub micro_step: Option<u32>,
}

/// One call, or a piece of it: pieces with one name become one entry.
#[derive(Clone, Copy, Debug)]
pub struct EntryRecord<'r> {
    /// The name, such as `Functional.linear.0.forward`.
    pub name: &'r str,
    /// Whether the entry moves to the end of the document.
    pub moves_to_end: bool,
    /// The place in `construct.json`; absent if this piece does not contain it.
    pub node: Option<Node<'r>>,
    /// The number of the entry's stack.
    pub stack: Option<u32>,
    /// Keys and JSON. The key of a saved value is empty: the entry is the value. An entry without parts appears only in
    /// `construct.json` and `stack.json`.
    pub parts: &'r [(&'r str, &'r [u8])],
}

/// Frames under construction, written together by one call.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// Starts without frames.
    pub fn new() -> Self {
        Self::default()
    }

    /// The encoded frames.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes the frames, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds the header of the file.
    pub(super) fn header(&mut self, json: &[u8]) {
        self.frame(HEADER, |bytes| bytes.extend_from_slice(json));
    }

    /// Adds a call, or a piece of it.
    pub fn entry(&mut self, entry: &EntryRecord<'_>) {
        let EntryRecord { name, moves_to_end, node, stack, parts } = *entry;
        let (parent, micro_step) = (node.and_then(|node| node.parent), node.and_then(|node| node.micro_step));
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = flag(moves_to_end, MOVES)
            | flag(node.is_some(), HAS_NODE)
            | flag(parent.is_some(), HAS_PARENT)
            | flag(micro_step.is_some(), HAS_MICRO_STEP)
            | flag(stack.is_some(), HAS_STACK);
        let texts: usize = parts.iter().map(|(key, json)| key.len() + json.len() + 8).sum();
        self.bytes.reserve(FRAME_HEAD + name.len() + parent.map_or(0, str::len) + texts + 32);
        self.frame(ENTRY, |bytes| {
            put_text(bytes, name.as_bytes());
            bytes.push(flags);
            if let Some(parent) = parent {
                put_text(bytes, parent.as_bytes());
            }
            for number in [micro_step, stack].into_iter().flatten() {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&(parts.len() as u32).to_le_bytes());
            for (key, json) in parts {
                put_text(bytes, key.as_bytes());
                put_text(bytes, json);
            }
        });
    }

    /// Adds a stack's lines, as a JSON list.
    pub fn stack(&mut self, number: u32, json: &[u8]) {
        self.frame(STACK, |bytes| {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(json);
        });
    }

    /// Adds the fillings of holes, as JSON.
    pub fn fills<'f>(&mut self, fills: impl ExactSizeIterator<Item = (Hole, &'f [u8])>) {
        self.frame(FILLS, |bytes| {
            bytes.extend_from_slice(&(fills.len() as u32).to_le_bytes());
            for (hole, json) in fills {
                bytes.extend_from_slice(&hole.0.to_le_bytes());
                put_text(bytes, json);
            }
        });
    }

    fn frame(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; FRAME_HEAD]);
        self.bytes.push(kind);
        write(&mut self.bytes);
        let content = &self.bytes[at + FRAME_HEAD..];
        let (length, crc) = (content.len() as u32, crc32fast::hash(content));
        self.bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        self.bytes[at + 4..at + FRAME_HEAD].copy_from_slice(&crc.to_le_bytes());
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text);
}

/// The content of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FrameContent<'r> {
    Header(&'r [u8]),
    Entry(EntryText<'r>),
    Stack(u32, &'r [u8]),
    Fills(Vec<(Hole, &'r [u8])>),
}

/// A decoded entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryText<'r> {
    pub(super) name: &'r str,
    pub(super) moves_to_end: bool,
    pub(super) node: Option<Node<'r>>,
    pub(super) stack: Option<u32>,
    pub(super) parts: Vec<(&'r str, &'r [u8])>,
}

/// Decodes a frame's content, whose checksum was verified. `None` if its kind is unknown, for example of a later
/// version.
pub(super) fn read(content: &[u8]) -> Option<FrameContent<'_>> {
    let (&kind, rest) = content.split_first()?;
    let mut bytes = Bytes { rest };
    let said = match kind {
        HEADER => return Some(FrameContent::Header(rest)),
        STACK => return Some(FrameContent::Stack(bytes.number()?, bytes.rest)),
        FILLS => {
            let count = bytes.number()?;
            let mut fills = Vec::new();
            for _ in 0..count {
                fills.push((Hole(bytes.number()?), bytes.text()?));
            }
            FrameContent::Fills(fills)
        }
        ENTRY => FrameContent::Entry(bytes.entry()?),
        _ => return None,
    };
    bytes.rest.is_empty().then_some(said)
}

struct Bytes<'r> {
    rest: &'r [u8],
}

impl<'r> Bytes<'r> {
    fn take(&mut self, count: usize) -> Option<&'r [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'r [u8]> {
        let length = self.number()?;
        self.take(length as usize)
    }

    fn words(&mut self) -> Option<&'r str> {
        std::str::from_utf8(self.text()?).ok()
    }

    fn entry(&mut self) -> Option<EntryText<'r>> {
        let name = self.words()?;
        let flags = self.take(1)?[0];
        let has = |bit| flags & bit != 0;
        let parent = if has(HAS_PARENT) { Some(self.words()?) } else { None };
        let micro_step = if has(HAS_MICRO_STEP) { Some(self.number()?) } else { None };
        let stack = if has(HAS_STACK) { Some(self.number()?) } else { None };
        let count = self.number()?;
        let mut parts = Vec::new();
        for _ in 0..count {
            parts.push((self.words()?, self.text()?));
        }
        let node = has(HAS_NODE).then_some(Node { parent, micro_step });
        Some(EntryText { name, moves_to_end: has(MOVES), node, stack, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(frames: &Frames) -> Vec<&[u8]> {
        let mut rest = frames.as_bytes();
        let mut found = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
            let content = &rest[FRAME_HEAD..FRAME_HEAD + length];
            assert_eq!(crc32fast::hash(content).to_le_bytes(), rest[4..8]);
            found.push(content);
            rest = &rest[FRAME_HEAD + length..];
        }
        found
    }

    #[test]
    fn what_is_written_is_read_back() {
        let node = Node { parent: Some("Module.a.A.forward.0"), micro_step: Some(3) };
        let parts: [(&str, &[u8]); 2] = [("input_args", b"[]"), ("output", b"[null]")];
        let whole =
            EntryRecord { name: "X.0.forward", moves_to_end: true, node: Some(node), stack: Some(7), parts: &parts };
        let bare = EntryRecord {
            name: "optimizer",
            moves_to_end: false,
            node: Some(Node::default()),
            stack: None,
            parts: &[],
        };
        let mut frames = Frames::new();
        frames.header(b"{}");
        frames.entry(&whole);
        frames.entry(&bare);
        frames.stack(7, b"[\"a\"]");
        frames.fills([(Hole(1), &b"2.0"[..]), (Hole(9), b"null")].into_iter());
        let said: Vec<FrameContent<'_>> = contents(&frames).into_iter().map(|content| read(content).unwrap()).collect();
        let entry = |record: &EntryRecord<'static>| {
            let EntryRecord { name, moves_to_end, node, stack, parts } = *record;
            FrameContent::Entry(EntryText { name, moves_to_end, node, stack, parts: parts.to_vec() })
        };
        let [header, first, second, stack, fills] = &said[..] else { panic!("{said:?}") };
        assert_eq!(header, &FrameContent::Header(b"{}"));
        let FrameContent::Entry(EntryText {
            name,
            moves_to_end,
            node: read_node,
            stack: read_stack,
            parts: read_parts,
        }) = first
        else {
            panic!("{first:?}")
        };
        assert_eq!((*name, *moves_to_end, *read_node, *read_stack), ("X.0.forward", true, Some(node), Some(7)));
        assert_eq!(read_parts[..], parts);
        assert_eq!(second, &entry(&bare));
        assert_eq!(stack, &FrameContent::Stack(7, b"[\"a\"]"));
        assert_eq!(fills, &FrameContent::Fills(vec![(Hole(1), b"2.0"), (Hole(9), b"null")]));
    }

    #[test]
    fn a_content_cut_anywhere_is_refused() {
        let mut frames = Frames::new();
        let parts: [(&str, &[u8]); 1] = [("input_args", b"[1]")];
        frames.entry(&EntryRecord { name: "a", moves_to_end: false, node: None, stack: None, parts: &parts });
        let content = contents(&frames)[0].to_vec();
        for length in 0..content.len() {
            assert_eq!(read(&content[..length]), None, "{length}");
        }
        assert_eq!(read(b"\xffx"), None, "a kind that is not known");
    }
}
