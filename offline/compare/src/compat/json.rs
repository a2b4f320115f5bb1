//! JSON as Python writes it: bare `NaN` and `Infinity`, floats with Python's digits, ASCII only.

use std::fmt::Write as _;

use trainmon_capture_files::{Json, Plain};

use super::cell::Cell;
use crate::python;

/// A JSON value in the making.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A number, boolean, text or null, or a list of them.
    Plain(Plain),
    /// A list.
    List(Vec<Node>),
    /// An object, its keys in order.
    Object(Vec<(String, Node)>),
}

impl Node {
    /// A text.
    pub fn text(text: impl Into<Box<str>>) -> Self {
        Self::Plain(Plain::Text(text.into()))
    }

    /// `json.dumps(…, indent=indent)`.
    pub fn dumps(&self, indent: usize) -> String {
        let mut text = String::new();
        self.write(&mut text, indent, 0);
        text
    }

    fn write(&self, to: &mut String, indent: usize, depth: usize) {
        match self {
            Self::Plain(Plain::List(items)) => {
                let items: Vec<Self> = items.iter().cloned().map(Self::Plain).collect();
                Self::List(items).write(to, indent, depth);
            }
            Self::Plain(plain) => write_plain(plain, to),
            Self::List(items) if items.is_empty() => to.push_str("[]"),
            Self::Object(fields) if fields.is_empty() => to.push_str("{}"),
            Self::List(items) => {
                to.push('[');
                for (index, item) in items.iter().enumerate() {
                    begin_line(to, index, indent, depth + 1);
                    item.write(to, indent, depth + 1);
                }
                end_line(to, indent, depth);
                to.push(']');
            }
            Self::Object(fields) => {
                to.push('{');
                for (index, (key, value)) in fields.iter().enumerate() {
                    begin_line(to, index, indent, depth + 1);
                    write_text(key, to);
                    to.push_str(": ");
                    value.write(to, indent, depth + 1);
                }
                end_line(to, indent, depth);
                to.push('}');
            }
        }
    }
}

impl From<Json> for Node {
    fn from(json: Json) -> Self {
        match json {
            Json::Plain(plain) => Self::Plain(plain),
            Json::List(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Json::Object(fields) => {
                Self::Object(fields.into_iter().map(|(key, value)| (key.into(), Self::from(value))).collect())
            }
        }
    }
}

impl From<&Cell> for Node {
    fn from(cell: &Cell) -> Self {
        match cell {
            Cell::Number(number) => Self::Plain(number.clone()),
            Cell::Bool(value) => Self::Plain(Plain::Bool(*value)),
            Cell::Texts(texts) => Self::List(texts.texts().iter().map(|text| Self::text(text.clone())).collect()),
            other => Self::text(&*other.text()),
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
    match plain {
        Plain::Null | Plain::List(_) => to.push_str("null"),
        Plain::Bool(value) => to.push_str(if *value { "true" } else { "false" }),
        Plain::Float(value) if value.is_nan() => to.push_str("NaN"),
        Plain::Float(value) if value.is_infinite() => to.push_str(if *value > 0.0 { "Infinity" } else { "-Infinity" }),
        Plain::Text(text) => write_text(text, to),
        number => to.push_str(&python::text(number)),
    }
}

fn write_text(text: &str, to: &mut String) {
    to.push('"');
    for letter in text.chars() {
        match letter {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            ' '..='~' => to.push(letter),
            other => {
                let mut units = [0; 2];
                for unit in other.encode_utf16(&mut units) {
                    // Writing into a String does not fail.
                    _ = write!(to, "\\u{unit:04x}");
                }
            }
        }
    }
    to.push('"');
}
