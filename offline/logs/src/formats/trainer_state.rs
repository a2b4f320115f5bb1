//! `trainer_state.json` of Hugging Face's Trainer: `log_history` is a list of objects, each with a `step`.

use jiter::JsonValue;

use super::json;
use crate::raw::RawLog;

/// The Trainer's file name.
pub(crate) const FILE: &str = "trainer_state.json";
/// The member with the log.
const HISTORY: &str = "log_history";

/// Reads the file; `None` for other JSON. In a truncated file, the complete entries are read.
pub(crate) fn read(text: &[u8]) -> Option<RawLog> {
    let (document, is_torn) = match JsonValue::parse(text, true) {
        Ok(document) => (document, false),
        Err(_) => (json::partial(text)?, true),
    };
    let JsonValue::Object(members) = &document else { return None };
    let place = members.iter().position(|(name, _)| name == HISTORY)?;
    let JsonValue::Array(history) = &members[place].1 else { return None };
    let mut raw = RawLog::default();
    let mut entries: &[JsonValue<'_>] = history;
    if is_torn {
        raw.notes.push(format!("the file is truncated, read the complete entries: {}", json::fault(text)));
        // The last entry of a truncated file may lack members or end in an incomplete number.
        if place + 1 == members.len() {
            entries = entries.split_last().map_or(entries, |(_, whole)| whole);
        }
    }
    for (place, entry) in (1..).zip(entries) {
        json::push(&mut raw, entry, place);
    }
    Some(raw)
}
