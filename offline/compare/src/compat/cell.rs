//! A cell of a table, with the type it has in JSON.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use trainmon_capture_files::Plain;

use crate::python;

/// A value and how it is shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A text.
    Text(Box<str>),
    /// A text that never changes.
    Word(&'static str),
    /// A number as the dump has it.
    Number(Plain),
    /// The text of a number.
    Printed(f64),
    /// The text of a number with a per cent sign.
    Percent(f64),
    /// A boolean.
    Bool(bool),
    /// A list of texts.
    Texts(Arc<Texts>),
}

/// A list of texts that many cells may share, such as a call stack.
#[derive(Debug)]
pub struct Texts {
    texts: Box<[Box<str>]>,
    /// The text as Python prints it, rendered once: a stack of twenty frames is by far the longest text of a row.
    rendered: OnceLock<String>,
}

impl Texts {
    /// Creates a list.
    pub fn new(texts: impl IntoIterator<Item = Box<str>>) -> Arc<Self> {
        Arc::new(Self { texts: texts.into_iter().collect(), rendered: OnceLock::new() })
    }

    /// The texts.
    pub fn texts(&self) -> &[Box<str>] {
        &self.texts
    }

    fn rendered(&self) -> &str {
        self.rendered.get_or_init(|| python::list(self.texts.iter().map(|text| &**text)))
    }
}

impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

impl Cell {
    /// An absent value.
    pub const NONE: Self = Self::Word("N/A");

    /// The text in a CSV file, where infinite numbers start with a blank and NaN is `Nan`.
    pub fn csv(&self) -> Cow<'_, str> {
        match self {
            Self::Number(Plain::Float(value)) if value.is_nan() => "Nan".into(),
            Self::Number(Plain::Float(value)) if value.is_infinite() => format!(" {}", python::float(*value)).into(),
            _ => self.text(),
        }
    }

    /// The text without the additions of files.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => (&**text).into(),
            Self::Word(word) => (*word).into(),
            Self::Number(value) => python::text(value).into(),
            Self::Printed(value) => python::float(*value).into(),
            Self::Percent(value) => (python::float(*value) + "%").into(),
            Self::Bool(value) => (if *value { "True" } else { "False" }).into(),
            Self::Texts(texts) => texts.rendered().into(),
        }
    }

    /// Passes [`Self::csv`] to `see`; formats numbers into `room` without an allocation.
    pub(crate) fn with_csv<R>(&self, room: &mut String, see: impl FnOnce(&str) -> R) -> R {
        match self {
            Self::Number(Plain::Float(value)) if !value.is_finite() => see(&self.csv()),
            _ => self.with_text(room, see),
        }
    }

    /// Passes [`Self::text`] to `see` in the same way.
    pub(crate) fn with_text<R>(&self, room: &mut String, see: impl FnOnce(&str) -> R) -> R {
        room.clear();
        match self {
            Self::Number(value) => python::push_text(room, value),
            Self::Printed(value) => python::push_float(room, *value),
            Self::Percent(value) => {
                python::push_float(room, *value);
                room.push('%');
            }
            _ => return see(&self.text()),
        }
        see(room)
    }

    /// Whether the value is absent.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Word("N/A"))
    }
}
