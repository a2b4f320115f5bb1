//! JSON: one object per line, an array of objects, or an object of arrays.

use jiter::{JsonValue, PartialMode};

use crate::columns::{Role, guess};
use crate::raw::{RawLog, RawRow, number};
use trainmon_report::counted;

/// The share of non-object lines above which the text is not JSON Lines.
const SHARE_OF_OBJECTS: f64 = 0.5;
/// The nesting depth of objects that are read.
const DEPTH: usize = 4;

/// Reads JSON; `None` if it has no object with a number. Lines that are not objects are counted.
pub(crate) fn read(text: &[u8]) -> Option<RawLog> {
    if let Ok(document) = JsonValue::parse(text, true) {
        return of_document(&document);
    }
    let lines = of_lines(text);
    lines.or_else(|| {
        // An array that was being written when the process ended.
        let document = partial(text).filter(|document| matches!(document, JsonValue::Array(_)))?;
        let mut raw = of_document(&document)?;
        raw.notes.push(format!("the file is truncated: {}", fault(text)));
        Some(raw)
    })
}

/// The complete part of a truncated document.
pub(crate) fn partial(text: &[u8]) -> Option<JsonValue<'_>> {
    JsonValue::parse_with_config(text, true, PartialMode::On).ok()
}

/// Why a text is not JSON; empty for valid JSON.
pub(crate) fn fault(text: &[u8]) -> String {
    JsonValue::parse(text, true).err().map_or_else(String::new, |error| error.description(text))
}

fn of_document(document: &JsonValue<'_>) -> Option<RawLog> {
    let mut raw = RawLog::default();
    match document {
        JsonValue::Array(rows) => {
            for (place, row) in (1..).zip(rows.iter()) {
                if let JsonValue::Object(_) = row {
                    push(&mut raw, row, place);
                }
            }
        }
        // A single object counts as a log only if it has a known name: configs are also objects of numbers and lists.
        JsonValue::Object(members) => {
            let arrays: Vec<(&str, &[JsonValue<'_>])> =
                members.iter().filter_map(|(name, value)| array_of(name, value)).collect();
            if arrays.is_empty() {
                push(&mut raw, document, 1);
            }
            let longest = arrays.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
            for place in 0..longest {
                let mut row = RawRow { place: place as u64 + 1, ..RawRow::default() };
                for (name, values) in &arrays {
                    let Some(value) = values.get(place) else { continue };
                    add(&mut raw, &mut row, name, value, DEPTH);
                }
                raw.rows.push(row);
            }
        }
        _ => return None,
    }
    let is_known = matches!(document, JsonValue::Array(_)) || has_known_name(&raw);
    (is_known && has_numbers(&raw)).then_some(raw)
}

/// Whether a column has the name of a step, loss or gradient norm.
fn has_known_name(raw: &RawLog) -> bool {
    let counts = raw.counts();
    [Role::Step, Role::Loss, Role::GradNorm].into_iter().any(|role| guess(role, &raw.names, &counts, &[]).is_some())
}

fn array_of<'a, 'j>(name: &'a str, value: &'a JsonValue<'j>) -> Option<(&'a str, &'a [JsonValue<'j>])> {
    if let JsonValue::Array(values) = value { Some((name, values.as_slice())) } else { None }
}

fn of_lines(text: &[u8]) -> Option<RawLog> {
    let mut raw = RawLog::default();
    let (mut objects, mut others, mut first_other, mut is_torn) = (0_u64, 0_u64, 0, false);
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    for (place, line) in (1..).zip(&lines) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match JsonValue::parse(line, true) {
            Ok(object @ JsonValue::Object(_)) => {
                objects += 1;
                push(&mut raw, &object, place);
            }
            _ if place as usize == lines.len() && line.first() == Some(&b'{') => is_torn = true,
            _ => {
                first_other = if others == 0 { place } else { first_other };
                others += 1;
            }
        }
    }
    if others > 0 {
        raw.notes.push(format!(
            "ignored {}, first in line {first_other}",
            counted(others, "line that is not a JSON object", "lines that are not JSON objects")
        ));
    }
    if is_torn {
        raw.notes.push("ignored the last line, which is truncated".to_owned());
    }
    let is_log = objects as f64 >= SHARE_OF_OBJECTS * (objects + others) as f64;
    (is_log && has_numbers(&raw)).then_some(raw)
}

fn has_numbers(raw: &RawLog) -> bool {
    raw.rows.iter().any(|row| !row.cells.is_empty())
}

/// Adds an object as a row.
pub(crate) fn push(raw: &mut RawLog, object: &JsonValue<'_>, place: u64) {
    let mut row = RawRow { place, ..RawRow::default() };
    if let JsonValue::Object(members) = object {
        for (name, value) in members.iter() {
            add(raw, &mut row, name, value, DEPTH);
        }
    }
    raw.rows.push(row);
}

/// Adds a value to a row; a member of an object is named `outer.inner`.
pub(crate) fn add(raw: &mut RawLog, row: &mut RawRow, name: &str, value: &JsonValue<'_>, depth: usize) {
    let found = match value {
        JsonValue::Object(members) => {
            for (inner, value) in members.iter().filter(|_| depth > 0) {
                add(raw, row, &format!("{name}.{inner}"), value, depth - 1);
            }
            return;
        }
        JsonValue::Int(value) => Some(*value as f64),
        JsonValue::BigInt(value) => number(&value.to_string()),
        JsonValue::Float(value) => Some(*value),
        JsonValue::Str(_) | JsonValue::Null | JsonValue::Bool(_) | JsonValue::Array(_) => None,
    };
    let column = raw.column(name);
    match (found, value) {
        (Some(value), _) => row.cells.push((column, value)),
        (None, JsonValue::Null) => raw.null(column),
        (None, JsonValue::Str(text)) => raw.text(row, column, text),
        (None, JsonValue::Bool(value)) => raw.unread(column, &value.to_string(), row.place),
        (None, _) => raw.unread(column, "[…]", row.place),
    }
}
