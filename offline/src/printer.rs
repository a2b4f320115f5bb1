//! The only module that touches stdout and stderr.

use std::error::Error;
use std::io::{self, ErrorKind, Write};

use anstyle::{AnsiColor, Style};

use crate::failure::causes;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();

/// Writes results to stdout and everything else to stderr; colours appear on terminals only and respect `NO_COLOR`.
pub(crate) struct Printer {
    out: anstream::AutoStream<io::Stdout>,
    err: anstream::AutoStream<io::Stderr>,
}

impl Printer {
    pub(crate) fn new() -> Self {
        Self { out: anstream::AutoStream::auto(io::stdout()), err: anstream::AutoStream::auto(io::stderr()) }
    }

    /// Writes a result. A reader that went away is not an error: it has what it wanted.
    pub(crate) fn result(&mut self, text: &str) -> io::Result<()> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        forgive_broken_pipe(written)
    }

    /// Writes a result as JSON, for people too.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        self.result(&(serde_json::to_string_pretty(value)? + "\n"))
    }

    /// Writes an `error:` line, what stands below it and the `hint:` line.
    pub(crate) fn error(&mut self, message: &str, excerpt: &str, hint: Option<&str>) {
        self.finding("error", ERROR, message, excerpt, hint);
    }

    /// Writes a `warning:` line, what stands below it and the `hint:` line.
    pub(crate) fn warning(&mut self, message: &str, excerpt: &str, hint: Option<&str>) {
        self.finding("warning", WARNING, message, excerpt, hint);
    }

    /// Writes a failure with its causes.
    pub(crate) fn failure(&mut self, failure: &dyn Error, hint: Option<&str>) {
        let causes: Vec<String> = causes(failure).iter().map(|cause| format!("Caused by: {cause}\n")).collect();
        self.finding("error", ERROR, &failure.to_string(), &causes.concat(), hint);
    }

    /// Writes what is neither; it may bring its own styles, like clap's messages.
    pub(crate) fn note(&mut self, text: &str) {
        // Nobody is left to hear that stderr failed; the exit code still tells.
        drop(self.err.write_all(text.as_bytes()));
    }

    fn finding(&mut self, label: &str, style: Style, message: &str, below: &str, hint: Option<&str>) {
        let hint = hint.map(|hint| format!("{HINT}hint:{HINT:#} {hint}\n")).unwrap_or_default();
        self.note(&format!("{style}{label}:{style:#} {message}\n{below}{hint}"));
    }
}

fn forgive_broken_pipe(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
