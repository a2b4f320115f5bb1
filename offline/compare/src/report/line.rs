//! A row of a table as the page has it: a JSON string, its cells one behind the other.
//!
//! The page's script takes a line apart when its row is looked at. Level and operator come first, then the histogram of units in
//! the last place, then the table's cells. A cell equal to the one before it is `=`, a text that many rows share is `@` and its
//! number, and one that begins like these has a `=` in front.

use std::io::Write;

use crate::compat::Cell;
use crate::write::{Facts, Rows};

/// Between two cells: a byte that JSON and HTML leave alone and that no value has.
const BETWEEN: u8 = 0x7f;
/// What stands for it in a text that has it all the same.
const SHOWN: &str = "\u{2421}";

/// Where a row belongs: its level in the page and its operator's number there.
pub(super) struct Head {
    pub(super) level: u8,
    pub(super) operator: u32,
    /// The number of the row's call stack among the page's texts.
    pub(super) stack: Option<u32>,
}

/// Writes a row with a comma and a line's end behind it.
pub(super) fn write(head: &Head, facts: &Facts<'_>, rows: &dyn Rows, index: usize, to: &mut Line<'_>) {
    let Line { bytes, room, last } = to;
    // Writing into a Vec does not fail.
    _ = write!(bytes, "\"{}{}", head.level, head.operator);
    bytes.push(BETWEEN);
    if let Some(distance) = facts.shared.distance.as_deref() {
        // Counts up to the last that is not 0.
        let used = distance.ulps.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        for (at, count) in distance.ulps[..used].iter().enumerate() {
            _ = write!(bytes, "{}{count}", if at == 0 { "" } else { " " });
        }
    }
    last.clear();
    rows.visit(index, &mut |cell| {
        bytes.push(BETWEEN);
        match cell {
            Cell::Texts(texts) => {
                last.clear();
                match head.stack.filter(|_| facts.shared.stack.as_ref() == Some(cell)) {
                    Some(stack) => _ = write!(bytes, "@{stack}"),
                    None => push(bytes, &texts.texts().join("\n")),
                }
            }
            cell => cell.with_text(room, |text| {
                if !text.is_empty() && *last == text {
                    bytes.push(b'=');
                    return;
                }
                last.clear();
                last.push_str(text);
                if text.starts_with(['=', '@']) {
                    bytes.push(b'=');
                }
                push(bytes, text);
            }),
        }
    });
    bytes.extend_from_slice(b"\",\n");
}

/// Where lines go, and memory that they share.
pub(super) struct Line<'b> {
    bytes: &'b mut Vec<u8>,
    room: String,
    last: String,
}

impl<'b> Line<'b> {
    pub(super) fn new(bytes: &'b mut Vec<u8>) -> Self {
        Self { bytes, room: String::new(), last: String::new() }
    }
}

/// A text inside a JSON string that may stand inside HTML: no `<` can end the script it is in.
fn push(to: &mut Vec<u8>, text: &str) {
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if !matches!(byte, b'"' | b'\\' | b'<' | BETWEEN | 0..0x20) {
            continue;
        }
        to.extend_from_slice(&text.as_bytes()[plain..at]);
        plain = at + 1;
        match byte {
            b'"' | b'\\' => to.extend([b'\\', byte]),
            b'\n' => to.extend_from_slice(b"\\n"),
            BETWEEN => to.extend_from_slice(SHOWN.as_bytes()),
            // Writing into a Vec does not fail.
            _ => _ = write!(to, "\\u{byte:04x}"),
        }
    }
    to.extend_from_slice(&text.as_bytes()[plain..]);
}
