//! Faults of a config file: their place, their cause and the hint.

use std::fmt;

use serde::Serialize;

use crate::printable;

/// The kind of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// The text is not JSON (comments and trailing commas are allowed).
    Syntax,
    /// A required key is missing.
    MissingKey,
    /// A key appears twice in one object.
    DuplicateKey,
    /// An unknown key. An error if it resembles a real one, a warning otherwise.
    UnknownKey,
    /// A value of the wrong JSON type.
    WrongType,
    /// A number, string or list outside its range.
    OutOfRange,
    /// A word that is not one of those allowed.
    UnknownValue,
    /// NaN or an infinity where a finite number belongs.
    NotFinite,
    /// Settings that exclude each other.
    Conflict,
    /// A feature that this version lacks is switched on. An error, or a warning if a training starts with the file.
    NotImplemented,
    /// A known key without effect (warnings only).
    NoEffect,
    /// The config measures or writes nothing (warnings only).
    Nothing,
}

/// One fault of a config file: an error or a warning, depending on the list that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The name of the file, as the caller gave it.
    pub file: String,
    /// The line, from 1; 0 if there is no text.
    pub line: usize,
    /// The column in characters, from 1; 0 if there is no text.
    pub column: usize,
    /// The path of the key, like `monitors.module.ops[2]`; empty for the document itself.
    pub key: String,
    /// The kind of fault.
    pub kind: DiagnosticKind,
    /// The value that the key accepts.
    pub expected: Option<String>,
    /// The value in the file, or the problem.
    pub found: Option<String>,
    /// The name that was probably meant.
    pub suggestion: Option<String>,
    /// The suggested fix.
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

/// All faults of one config file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}", lines(errors))]
pub struct ConfigErrors {
    /// The errors, sorted by position; at least one.
    pub errors: Vec<Diagnostic>,
    /// The warnings found with the errors.
    pub warnings: Vec<Diagnostic>,
}

fn lines(errors: &[Diagnostic]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
