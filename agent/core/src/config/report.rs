//! Collecting faults while a file is read.

use std::collections::HashMap;

use super::diagnostic::{Diagnostic, DiagnosticKind};
use super::source::LineIndex;

/// Joins a key path and a name; a name that is not a plain word is quoted.
pub(super) fn join(key: &str, name: &str) -> String {
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '/'));
    match (key.is_empty(), is_word) {
        (true, true) => name.to_owned(),
        (false, true) => format!("{key}.{name}"),
        (_, false) => format!("{key}[{name:?}]"),
    }
}

/// A fault before it has a place.
pub(super) struct Fault {
    kind: DiagnosticKind,
    expected: Option<String>,
    found: Option<String>,
    suggestion: Option<String>,
    hint: Option<String>,
}

impl Fault {
    /// A fault described by one phrase.
    pub(super) fn new(kind: DiagnosticKind, found: impl Into<String>) -> Self {
        Self { kind, expected: None, found: Some(found.into()), suggestion: None, hint: None }
    }

    pub(super) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    pub(super) fn suggestion(mut self, suggestion: Option<&str>) -> Self {
        self.suggestion = suggestion.map(str::to_owned);
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The reader of a file, which determines whether a fault is an error or a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// A check of the file: a feature that this version lacks is an error.
    Check,
    /// A training that starts with the file: a feature that this version lacks is a warning.
    Training,
    /// A training written for msprobe: values that msprobe accepts although they make no sense are warnings, too.
    MsprobeTraining,
}

/// The faults found so far, and the place of each key.
pub(super) struct Report<'a> {
    file: &'a str,
    reader: Reader,
    lines: LineIndex<'a>,
    places: HashMap<String, usize>,
    errors: Vec<(usize, Diagnostic)>,
    warnings: Vec<(usize, Diagnostic)>,
}

impl<'a> Report<'a> {
    pub(super) fn new(file: &'a str, text: &'a str, reader: Reader) -> Self {
        let (errors, warnings) = (Vec::new(), Vec::new());
        Self { file, reader, lines: LineIndex::new(text), places: HashMap::new(), errors, warnings }
    }

    /// Stores the place of a key, for faults found later.
    pub(super) fn remember(&mut self, key: &str, offset: usize) {
        self.places.insert(key.to_owned(), offset);
    }

    /// Whether the file has this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// The place of a key; the start of the file if it has none.
    pub(super) fn place(&self, key: &str) -> usize {
        self.places.get(key).copied().unwrap_or(0)
    }

    /// Line and column of an offset, both from 1.
    pub(super) fn line_and_column(&self, offset: usize) -> (usize, usize) {
        self.lines.line_and_column(offset)
    }

    pub(super) fn error(&mut self, offset: usize, key: &str, fault: Fault) {
        let diagnostic = self.locate(offset, key, fault);
        self.errors.push((offset, diagnostic));
    }

    pub(super) fn warn(&mut self, offset: usize, key: &str, fault: Fault) {
        let diagnostic = self.locate(offset, key, fault);
        self.warnings.push((offset, diagnostic));
    }

    /// Reports a feature that this version lacks: `what` identifies it if the key alone does not.
    pub(super) fn lacks(&mut self, offset: usize, key: &str, what: &str, hint: &str) {
        let subject = if what.is_empty() { String::new() } else { format!("`{what}` is ") };
        let fault = |effect: &str| {
            Fault::new(DiagnosticKind::NotImplemented, format!("{subject}not implemented yet{effect}")).hint(hint)
        };
        match self.reader {
            Reader::Check => self.error(offset, key, fault("")),
            Reader::Training | Reader::MsprobeTraining => self.warn(offset, key, fault("; it has no effect")),
        }
    }

    /// Reports a key of another file: an error in a check, without effect in a training.
    pub(super) fn misplaced(&mut self, offset: usize, key: &str, found: &str, hint: &str) {
        let fault = Fault::new(DiagnosticKind::Conflict, found).hint(hint);
        match self.reader {
            Reader::Check => self.error(offset, key, fault),
            Reader::Training | Reader::MsprobeTraining => self.warn(offset, key, fault),
        }
    }

    /// Reports a value that makes no sense but that msprobe accepts.
    pub(super) fn refuse(&mut self, offset: usize, key: &str, fault: Fault) {
        match self.reader {
            Reader::Check | Reader::Training => self.error(offset, key, fault),
            Reader::MsprobeTraining => self.warn(offset, key, fault),
        }
    }

    /// Adds this hint to the errors at `key` and its elements that have none.
    pub(super) fn add_hint(&mut self, key: &str, hint: &str) {
        for (_, error) in self.errors.iter_mut().filter(|(_, error)| error.key == key && error.hint.is_none()) {
            error.hint = Some(hint.to_owned());
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Errors and warnings, each in the order of the file.
    pub(super) fn finish(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let sorted = |mut list: Vec<(usize, Diagnostic)>| {
            list.sort_by_key(|(offset, _)| *offset);
            list.into_iter().map(|(_, diagnostic)| diagnostic).collect()
        };
        (sorted(self.errors), sorted(self.warnings))
    }

    fn locate(&self, offset: usize, key: &str, fault: Fault) -> Diagnostic {
        let (line, column) = self.line_and_column(offset);
        let Fault { kind, expected, found, suggestion, hint } = fault;
        Diagnostic {
            file: self.file.to_owned(),
            line,
            column,
            key: key.to_owned(),
            kind,
            expected,
            found,
            suggestion,
            hint,
        }
    }
}
