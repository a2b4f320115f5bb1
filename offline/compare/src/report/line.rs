//! A table row for the page: a JSON string with its cells joined.
//!
//! The page's script parses a line when its row is shown. Level and operator come first, then the histogram of units in the
//! last place, then the table's cells. A cell equal to the previous one is `=`, a text that many rows share is `@` and its
//! number, and a cell that begins with one of these gets a `=` in front.

use std::io::Write;

use crate::compat::Cell;
use crate::write::{Facts, Rows};

/// The separator of cells: a byte without meaning in JSON and HTML, and in no value.
const BETWEEN: u8 = 0x7f;
/// Its replacement in a text that contains it nevertheless.
const SHOWN: &str = "\u{2421}";

/// The place of a row: its level and its operator's number on the page.
pub(super) struct Head {
    pub(super) level: u8,
    pub(super) operator: u32,
    /// The number of the row's call stack among the page's texts.
    pub(super) stack: Option<u32>,
}

/// Writes a row, a comma and a line break.
pub(super) fn write(head: &Head, facts: &Facts<'_>, rows: &dyn Rows, index: usize, to: &mut Line<'_>) {
    let Line { bytes, room, last } = to;
    // Writing into a Vec cannot fail.
    _ = write!(bytes, "\"{}{}", head.level, head.operator);
    bytes.push(BETWEEN);
    if let Some(distance) = facts.shared.distance.as_deref() {
        // Counts up to the last nonzero one.
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

/// The output for lines, with shared memory.
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

/// A text inside a JSON string that is safe inside HTML: no `<` can end the script.
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
            // Writing into a Vec cannot fail.
            _ => _ = write!(to, "\\u{byte:04x}"),
        }
    }
    to.extend_from_slice(&text.as_bytes()[plain..]);
}
