//! Writes JSON in the form of a capture's files: ASCII only, Python's floats, bare `NaN` and `Infinity`.

use trainmon_core::write_python_float;

/// Starts a hole: a place whose value is written later, or never.
pub(super) const VALUE_HOLE: u8 = 1;
/// Starts a hole at an object's end, which is filled with a whole `,"key":value` or remains empty.
pub(super) const MEMBER_HOLE: u8 = 2;
/// The length of a hole: its mark and eight hexadecimal digits.
pub(super) const HOLE_LENGTH: usize = 9;

/// The number of a hole, unique in a record file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hole(pub u32);

/// A piece of JSON under construction. It writes commas itself; the caller must end what it begins.
///
/// A byte below 0x20 never occurs in this JSON (texts escape them, and nothing is indented), so such bytes mark holes.
#[derive(Clone, Debug, Default)]
pub struct JsonText {
    bytes: Vec<u8>,
    /// Whether the next value or key is the first in its list or object, or follows a key.
    is_first: bool,
}

impl JsonText {
    /// Starts empty.
    pub fn new() -> Self {
        Self { bytes: Vec::new(), is_first: true }
    }

    /// Starts empty, with memory for this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), is_first: true }
    }

    /// The bytes written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of bytes written so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Removes the content, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.is_first = true;
    }

    /// Removes the content but keeps the position in lists and objects: later values continue it.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
    }

    /// Starts another value, separate from the content so far and without a comma.
    pub fn begin_piece(&mut self) {
        self.is_first = true;
    }

    /// Whether nothing was written since [`begin_piece`](Self::begin_piece).
    pub fn is_piece_empty(&self) -> bool {
        self.is_first
    }

    fn separate(&mut self) {
        if !self.is_first {
            self.bytes.push(b',');
        }
        self.is_first = false;
    }

    /// Begins a list.
    pub fn begin_list(&mut self) {
        self.separate();
        self.bytes.push(b'[');
        self.is_first = true;
    }

    /// Ends a list.
    pub fn end_list(&mut self) {
        self.bytes.push(b']');
        self.is_first = false;
    }

    /// Begins an object.
    pub fn begin_object(&mut self) {
        self.separate();
        self.bytes.push(b'{');
        self.is_first = true;
    }

    /// Ends an object.
    pub fn end_object(&mut self) {
        self.bytes.push(b'}');
        self.is_first = false;
    }

    /// Writes the key of the next value.
    pub fn key(&mut self, key: &str) {
        self.separate();
        self.quoted(key);
        self.bytes.push(b':');
        self.is_first = true;
    }

    /// Writes `null`.
    pub fn null(&mut self) {
        self.separate();
        self.bytes.extend_from_slice(b"null");
    }

    /// Writes `true` or `false`.
    pub fn bool(&mut self, value: bool) {
        self.separate();
        self.bytes.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// Writes an integer.
    pub fn int(&mut self, value: i64) {
        self.separate();
        self.bytes.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    /// Writes an unsigned integer.
    pub fn unsigned(&mut self, value: u64) {
        self.separate();
        self.bytes.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    /// Writes an integer of any size, given as decimal digits. Text other than a sign and digits becomes `null`.
    pub fn big_int(&mut self, digits: &str) {
        let bare = digits.strip_prefix('-').unwrap_or(digits);
        let has_leading_zero = bare.len() > 1 && bare.starts_with('0');
        if bare.is_empty() || has_leading_zero || !bare.bytes().all(|byte| byte.is_ascii_digit()) {
            return self.null();
        }
        self.separate();
        self.bytes.extend_from_slice(digits.as_bytes());
    }

    /// Writes a float like Python's `json`.
    pub fn float(&mut self, value: f64) {
        self.separate();
        match value {
            _ if value.is_nan() => self.bytes.extend_from_slice(b"NaN"),
            f64::INFINITY => self.bytes.extend_from_slice(b"Infinity"),
            f64::NEG_INFINITY => self.bytes.extend_from_slice(b"-Infinity"),
            _ => write_python_float(value, |part| self.bytes.extend_from_slice(part.as_bytes())),
        }
    }

    /// Writes a text.
    pub fn text(&mut self, value: &str) {
        self.separate();
        self.quoted(value);
    }

    /// Writes a hole for a later value; `null` if it is never filled.
    pub fn hole(&mut self, hole: Hole) {
        self.separate();
        self.mark(VALUE_HOLE, hole);
    }

    /// Writes a hole at an object's end, for a key and value that are written later, or never. Only other member holes
    /// and keys may follow it in the object.
    pub fn member_hole(&mut self, hole: Hole) {
        self.mark(MEMBER_HOLE, hole);
    }

    fn mark(&mut self, mark: u8, hole: Hole) {
        self.bytes.push(mark);
        let digits = |place: u32| b"0123456789abcdef"[(hole.0 >> (28 - 4 * place) & 0xf) as usize];
        self.bytes.extend((0..8).map(digits));
    }

    /// Writes existing JSON.
    pub fn raw(&mut self, json: &[u8]) {
        self.separate();
        self.bytes.extend_from_slice(json);
    }

    fn quoted(&mut self, text: &str) {
        self.bytes.push(b'"');
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
            // True for nearly every text.
            self.bytes.extend_from_slice(text.as_bytes());
            self.bytes.push(b'"');
            return;
        }
        for character in text.chars() {
            match character {
                '"' => self.bytes.extend_from_slice(b"\\\""),
                '\\' => self.bytes.extend_from_slice(b"\\\\"),
                '\n' => self.bytes.extend_from_slice(b"\\n"),
                '\r' => self.bytes.extend_from_slice(b"\\r"),
                '\t' => self.bytes.extend_from_slice(b"\\t"),
                '\u{8}' => self.bytes.extend_from_slice(b"\\b"),
                '\u{c}' => self.bytes.extend_from_slice(b"\\f"),
                ' '..='~' => self.bytes.push(character as u8),
                _ => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        let digit = |shift: u16| b"0123456789abcdef"[usize::from(*unit >> shift & 0xf)];
                        self.bytes.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
                    }
                }
            }
        }
        self.bytes.push(b'"');
    }
}

/// The number of the hole whose mark is at the beginning of `bytes`.
pub(super) fn hole_at(bytes: &[u8]) -> Option<Hole> {
    let digits = std::str::from_utf8(bytes.get(1..HOLE_LENGTH)?).ok()?;
    u32::from_str_radix(digits, 16).ok().map(Hole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_python_writes_them() {
        let mut json = JsonText::new();
        json.begin_object();
        json.key("a b/\"\u{e9}\u{1f600}\u{7f}\n");
        json.begin_list();
        json.null();
        json.bool(true);
        json.int(-3);
        json.unsigned(u64::MAX);
        json.big_int("-123456789012345678901234567890");
        json.big_int("12x");
        json.big_int("007");
        for value in [1.0, 1e-5, 1e16, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
            json.float(value);
        }
        json.end_list();
        json.key("b");
        json.begin_object();
        json.end_object();
        json.end_object();
        // Python: json.dumps({...}, separators=(",", ":"))
        let expected = r#"{"a b/\"\u00e9\ud83d\ude00\u007f\n":[null,true,-3,18446744073709551615,-123456789012345678901234567890,null,null,1.0,1e-05,1e+16,NaN,Infinity,-Infinity,-0.0],"b":{}}"#;
        assert_eq!(std::str::from_utf8(json.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn a_hole_is_found_again() {
        let mut json = JsonText::new();
        json.begin_list();
        json.hole(Hole(0xdead_beef));
        json.end_list();
        assert_eq!((json.as_bytes()[1], hole_at(&json.as_bytes()[1..])), (VALUE_HOLE, Some(Hole(0xdead_beef))));
        assert_eq!(hole_at(b"\x0112"), None);
    }
}
