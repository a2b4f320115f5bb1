//! The only module that writes to stdout and stderr.

use std::error::Error;
use std::io::{self, ErrorKind, Write};

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use trainmon_core::printable;

use crate::failure::{Advise, causes};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();

/// The tone of a result, shown as the colour of its first line on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// The expected result.
    Good,
    /// A result to look at.
    Doubtful,
    /// A found problem.
    Bad,
}

/// A text whose first line has the colour of its tone. [`Printer`] removes the colour if there is no terminal.
pub fn toned(tone: Tone, text: &str) -> String {
    let style = match tone {
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Doubtful => WARNING,
        Tone::Bad => ERROR,
    };
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    format!("{style}{first}{style:#}\n{rest}")
}

/// Writes results to stdout and everything else to stderr; colours appear only on terminals and respect `NO_COLOR`.
pub struct Printer {
    out: anstream::AutoStream<io::Stdout>,
    err: anstream::AutoStream<io::Stderr>,
}

impl Default for Printer {
    fn default() -> Self {
        Self::new()
    }
}

impl Printer {
    /// A printer for the standard streams of this process.
    pub fn new() -> Self {
        Self { out: anstream::AutoStream::auto(io::stdout()), err: anstream::AutoStream::auto(io::stderr()) }
    }

    /// Writes a result. A closed pipe is not an error: the reader has what it needed.
    ///
    /// # Errors
    /// The stream cannot be written.
    pub fn result(&mut self, text: &str) -> io::Result<()> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        forgive_broken_pipe(written)
    }

    /// Writes a result as indented JSON.
    ///
    /// # Errors
    /// The stream cannot be written.
    pub fn json(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        self.result(&(serde_json::to_string_pretty(value)? + "\n"))
    }

    /// Writes the result of a command: as JSON if requested, otherwise the result as text or the error with its hint.
    ///
    /// # Errors
    /// The stream cannot be written.
    pub fn answer<T, E: Advise>(
        &mut self,
        result: &Result<T, E>,
        json: Option<Value>,
        in_words: impl FnOnce(&T) -> String,
    ) -> io::Result<()> {
        match (json, result) {
            (Some(value), _) => self.json(&value)?,
            (None, Ok(found)) => self.result(&in_words(found))?,
            (None, Err(error)) => self.failure(error, Some(error.hint())),
        }
        Ok(())
    }

    /// Writes an `error:` line, its excerpt and the `hint:` line.
    pub fn error(&mut self, message: &str, excerpt: &str, hint: Option<&str>) {
        self.finding("error", ERROR, message, excerpt, hint);
    }

    /// Writes a `warning:` line, its excerpt and the `hint:` line.
    pub fn warning(&mut self, message: &str, excerpt: &str, hint: Option<&str>) {
        self.finding("warning", WARNING, message, excerpt, hint);
    }

    /// Writes an error with its causes.
    pub fn failure(&mut self, failure: &dyn Error, hint: Option<&str>) {
        let causes: Vec<String> =
            causes(failure).iter().map(|cause| format!("Caused by: {}\n", printable(cause))).collect();
        self.finding("error", ERROR, &failure.to_string(), &causes.concat(), hint);
    }

    /// Writes any other text to stderr; it may contain its own styles, like clap's messages.
    pub fn note(&mut self, text: &str) {
        // An error on stderr cannot be reported; the exit code still is.
        drop(self.err.write_all(text.as_bytes()));
    }

    fn finding(&mut self, label: &str, style: Style, message: &str, below: &str, hint: Option<&str>) {
        let message = printable(message);
        let hint = hint.map(|hint| format!("{HINT}hint:{HINT:#} {}\n", printable(hint))).unwrap_or_default();
        self.note(&format!("{style}{label}:{style:#} {message}\n{below}{hint}"));
    }
}

fn forgive_broken_pipe(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
