//! Finds the intact part of a file of findings.

use serde::de::{DeserializeOwned, IgnoredAny};

/// The file is not an object of findings, or is damaged elsewhere than at its end, so that cutting it would lose
/// findings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damage;

/// The length in bytes of the opening brace and all whole findings; passes their keys to `tell`. Reads every byte once.
/// 0 for an empty file.
pub(crate) fn whole_findings(bytes: &[u8], mut tell: impl FnMut(String)) -> Result<usize, Damage> {
    // A whole finding contains only valid text.
    let valid = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    let mut reader = Reader { bytes: &bytes[..valid], place: 0 };
    if !reader.take(b'{') {
        return if is_blank(bytes) { Ok(0) } else { Err(Damage) };
    }
    let mut kept = reader.place;
    let mut is_first = true;
    loop {
        if reader.take(b'}') {
            // The object is complete: nothing may follow.
            return if is_blank(&bytes[reader.place..]) { Ok(kept) } else { Err(Damage) };
        }
        let finding = reader.finding(is_first);
        let Some(key) = finding else { break };
        (kept, is_first) = (reader.place, false);
        tell(key);
    }
    // An incomplete end is the start of the last write. If it contains a whole finding, the damage is of another kind.
    let torn = &bytes[kept..];
    if torn.windows(FINDING_END.len()).any(|window| window == FINDING_END) { Err(Damage) } else { Ok(kept) }
}

/// A finding ends with a line of one space and a brace.
const FINDING_END: &[u8] = b"\n }";

/// Whether there is only white space, or a block of zeros that never reached the disk.
fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0)
}

struct Reader<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl Reader<'_> {
    /// Skips white space, and `byte` if it comes next. Returns whether it did.
    fn take(&mut self, byte: u8) -> bool {
        let rest = &self.bytes[self.place..];
        self.place += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let is_next = self.bytes.get(self.place) == Some(&byte);
        self.place += usize::from(is_next);
        is_next
    }

    /// Skips a finding and returns its key. `None` if it is not whole; the position is then meaningless.
    fn finding(&mut self, is_first: bool) -> Option<String> {
        if !is_first && !self.take(b',') {
            return None;
        }
        let key = self.value::<String>()?;
        if !self.take(b':') || !self.bytes[self.place..].trim_ascii_start().starts_with(b"{") {
            return None;
        }
        self.value::<IgnoredAny>()?;
        Some(key)
    }

    fn value<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut values = serde_json::Deserializer::from_slice(&self.bytes[self.place..]).into_iter::<T>();
        let value = values.next()?.ok()?;
        self.place += values.byte_offset();
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<(usize, Vec<String>), Damage> {
        let mut keys = Vec::new();
        whole_findings(text, |key| keys.push(key)).map(|kept| (kept, keys))
    }

    #[test]
    fn whole_files_keep_all_but_their_closing_brace() {
        assert_eq!(read(b""), Ok((0, vec![])));
        assert_eq!(read(b"\0\0\n"), Ok((0, vec![])));
        assert_eq!(read(b"{\n}"), Ok((1, vec![])));
        let text = "{\n \"\u{20ac}\": {\n  \"a\": 1\n },\n \"b\\n\": {\n }\n}\n";
        let body = text.trim_end().strip_suffix("\n}").unwrap().len();
        assert_eq!(read(text.as_bytes()), Ok((body, vec!["\u{20ac}".to_owned(), "b\n".to_owned()])));
    }

    #[test]
    fn what_is_no_object_of_findings_is_left_alone() {
        for text in [&b"[1, 2]"[..], b"{}\nmore", b"\xff", b"{\n \"a\": {\n\xff },\n \"b\": {\n }\n}"] {
            assert_eq!(read(text), Err(Damage), "{text:?}");
        }
    }

    #[test]
    fn every_torn_end_is_cut_back_to_the_last_whole_finding() {
        let text = "{\n \"a\": {\n  \"n\": \"}\"\n },\n \"\u{20ac}\": {\n  \"n\": 2\n }\n}".as_bytes();
        let ends: Vec<usize> = (0..text.len()).filter(|&end| text[..end].ends_with(b"\n }")).collect();
        for cut in 1..text.len() {
            let whole = ends.iter().filter(|&&end| end <= cut).count();
            let expected = if whole == 0 { 1 } else { ends[whole - 1] };
            let (kept, keys) = read(&text[..cut]).unwrap();
            assert_eq!((kept, keys.len()), (expected, whole), "cut at {cut}");
        }
    }
}
