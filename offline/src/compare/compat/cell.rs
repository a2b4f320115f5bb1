//! A cell of a table, with the type it has in JSON.

use trainmon_dump::capture::Plain;

use crate::compare::python;

/// A value and how it is shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A text.
    Text(Box<str>),
    /// A text that never changes.
    Word(&'static str),
    /// A number as the dump has it.
    Number(Plain),
    /// A boolean.
    Bool(bool),
    /// A list of texts.
    Texts(Vec<Box<str>>),
}

impl Cell {
    /// Not there.
    pub const NONE: Self = Self::Word("N/A");

    /// The text in a CSV file. A number that is infinite gets a blank in front there, NaN is `Nan`.
    pub fn csv(&self) -> String {
        match self {
            Self::Text(text) => text.to_string(),
            Self::Word(word) => (*word).to_owned(),
            Self::Number(Plain::Float(value)) if value.is_nan() => "Nan".to_owned(),
            Self::Number(Plain::Float(value)) if value.is_infinite() => format!(" {}", python::float(*value)),
            Self::Number(value) => python::text(value),
            Self::Bool(value) => if *value { "True" } else { "False" }.to_owned(),
            Self::Texts(texts) => python::list(texts.iter().map(|text| &**text)),
        }
    }

    /// The text it is, without what files add.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Text(text) => (&**text).into(),
            Self::Word(word) => (*word).into(),
            Self::Number(value) => python::text(value).into(),
            Self::Bool(value) => (if *value { "True" } else { "False" }).into(),
            Self::Texts(texts) => python::list(texts.iter().map(|text| &**text)).into(),
        }
    }

    /// Whether nothing is there.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Word("N/A"))
    }
}
