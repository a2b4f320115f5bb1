//! JSON as Python writes it: bare `NaN` and `Infinity`, floats with Python's digits, ASCII only.

use trainmon_capture_files::{Json, JsonText, Plain};

use super::cell::Cell;

/// A text.
pub(crate) fn text(text: impl Into<Box<str>>) -> Json {
    Json::Plain(Plain::Text(text.into()))
}

/// `json.dumps(…, indent=indent)`.
pub fn dumps(json: &Json, indent: usize) -> String {
    let mut text = String::new();
    write(json, &mut text, indent, 0);
    text
}

fn write(json: &Json, to: &mut String, indent: usize, depth: usize) {
    match json {
        Json::Plain(Plain::List(items)) => {
            let items: Vec<Json> = items.iter().cloned().map(Json::Plain).collect();
            write(&Json::List(items), to, indent, depth);
        }
        Json::Plain(plain) => write_plain(plain, to),
        Json::List(items) if items.is_empty() => to.push_str("[]"),
        Json::Object(fields) if fields.is_empty() => to.push_str("{}"),
        Json::List(items) => {
            to.push('[');
            for (index, item) in items.iter().enumerate() {
                begin_line(to, index, indent, depth + 1);
                write(item, to, indent, depth + 1);
            }
            end_line(to, indent, depth);
            to.push(']');
        }
        Json::Object(fields) => {
            to.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                begin_line(to, index, indent, depth + 1);
                write_plain(&Plain::Text(key.clone()), to);
                to.push_str(": ");
                write(value, to, indent, depth + 1);
            }
            end_line(to, indent, depth);
            to.push('}');
        }
    }
}

impl From<&Cell> for Json {
    fn from(cell: &Cell) -> Self {
        match cell {
            Cell::Number(number) => Self::Plain(number.clone()),
            Cell::Bool(value) => Self::Plain(Plain::Bool(*value)),
            Cell::Texts(texts) => Self::List(texts.texts().iter().map(|frame| text(frame.clone())).collect()),
            other => text(&*other.text()),
        }
    }
}

fn begin_line(to: &mut String, index: usize, indent: usize, depth: usize) {
    if index > 0 {
        to.push(',');
    }
    end_line(to, indent, depth);
}

fn end_line(to: &mut String, indent: usize, depth: usize) {
    to.push('\n');
    to.extend(std::iter::repeat_n(' ', indent * depth));
}

fn write_plain(plain: &Plain, to: &mut String) {
    let mut json = JsonText::new();
    match plain {
        Plain::Null | Plain::List(_) => json.null(),
        Plain::Bool(value) => json.bool(*value),
        Plain::Int(value) => json.int(*value),
        Plain::Big(digits) => json.big_int(digits),
        Plain::Float(value) => json.float(*value),
        Plain::Text(text) => json.text(text),
    }
    to.push_str(&String::from_utf8_lossy(json.as_bytes()));
}
