//! What is wrong with a config file, where, and what to write instead.

use std::fmt;

use serde::Serialize;

use crate::printable;

/// What sort of fault a [`Diagnostic`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// The text is not JSON (comments and trailing commas are allowed).
    Syntax,
    /// A key that must be given is missing.
    MissingKey,
    /// A key appears twice in one object.
    DuplicateKey,
    /// A key that does not exist. An error if it resembles a real one, a warning otherwise.
    UnknownKey,
    /// A value of the wrong JSON type.
    WrongType,
    /// A number, string or list outside its range.
    OutOfRange,
    /// A word that is none of those allowed.
    UnknownValue,
    /// NaN or an infinity where a finite number belongs.
    NotFinite,
    /// Settings that exclude each other.
    Conflict,
    /// A feature this version does not have is switched on. An error, but a warning where a training starts with the
    /// file.
    NotImplemented,
    /// A key that is understood and has no effect (warnings only).
    NoEffect,
    /// The config measures or writes nothing (warnings only).
    Nothing,
}

/// One fault of a config file: an error or a warning, by the list it stands in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The name of the file, as the caller gave it.
    pub file: String,
    /// The line, from 1; 0 where there is no text to look at.
    pub line: usize,
    /// The column in characters, from 1; 0 likewise.
    pub column: usize,
    /// The path of the key, like `monitors.module.ops[2]`; empty for the document itself.
    pub key: String,
    /// What sort of fault it is.
    pub kind: DiagnosticKind,
    /// What the key takes.
    pub expected: Option<String>,
    /// What the file has instead, or what the matter is.
    pub found: Option<String>,
    /// The name that was probably meant.
    pub suggestion: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// The fault without its place and hint: "key `x`: expected …, found …; did you mean `y`?".
    pub fn message(&self) -> String {
        let subject = if self.key.is_empty() { String::new() } else { format!("key `{}`: ", self.key) };
        let matter = match (&self.expected, &self.found) {
            (Some(expected), Some(found)) => format!("expected {expected}, found {found}"),
            (Some(expected), None) => format!("expected {expected}"),
            (None, found) => found.clone().unwrap_or_else(|| "refused".to_owned()),
        };
        let meant = self.suggestion.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        printable(&(subject + &matter + &meant)).into_owned()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "{}: {}", self.file, self.message());
        }
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message())
    }
}

/// Everything wrong with one config file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}", lines(errors))]
pub struct ConfigErrors {
    /// The errors, sorted by position; at least one.
    pub errors: Vec<Diagnostic>,
    /// What was found beside them.
    pub warnings: Vec<Diagnostic>,
}

fn lines(errors: &[Diagnostic]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
