//! The only module that touches stdout and stderr.

use std::error::Error;
use std::io::{self, ErrorKind, Write};

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use trainmon_core::printable;

use crate::failure::{Advise, causes};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();

/// How good a result is, as its first line's colour says on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// What one hopes for.
    Good,
    /// Something to look at.
    Doubtful,
    /// What one asked about.
    Bad,
}

/// A text whose first line has the colour of its tone. [`Printer`] leaves the colour out where there is no terminal.
pub fn toned(tone: Tone, text: &str) -> String {
    let style = match tone {
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Doubtful => WARNING,
        Tone::Bad => ERROR,
    };
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    format!("{style}{first}{style:#}\n{rest}")
}

/// Writes results to stdout and everything else to stderr; colours appear on terminals only and respect `NO_COLOR`.
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
    /// For the standard streams of this process.
    pub fn new() -> Self {
        Self { out: anstream::AutoStream::auto(io::stdout()), err: anstream::AutoStream::auto(io::stderr()) }
    }

    /// Writes a result. A reader that went away is not an error: it has what it wanted.
    ///
    /// # Errors
    /// The stream refuses.
    pub fn result(&mut self, text: &str) -> io::Result<()> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        forgive_broken_pipe(written)
    }

    /// Writes a result as JSON, for people too.
    ///
    /// # Errors
    /// The stream refuses.
    pub fn json(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        self.result(&(serde_json::to_string_pretty(value)? + "\n"))
    }

    /// Writes what came of a command: `json` where that is asked for, else the result in words or the failure with its advice.
    ///
    /// # Errors
    /// The stream refuses.
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

    /// Writes an `error:` line, what stands below it and the `hint:` line.
    pub fn error(&mut self, message: &str, excerpt: &str, hint: Option<&str>) {
        self.finding("error", ERROR, message, excerpt, hint);
    }

    /// Writes a `warning:` line, what stands below it and the `hint:` line.
    pub fn warning(&mut self, message: &str, excerpt: &str, hint: Option<&str>) {
        self.finding("warning", WARNING, message, excerpt, hint);
    }

    /// Writes a failure with its causes.
    pub fn failure(&mut self, failure: &dyn Error, hint: Option<&str>) {
        let causes: Vec<String> =
            causes(failure).iter().map(|cause| format!("Caused by: {}\n", printable(cause))).collect();
        self.finding("error", ERROR, &failure.to_string(), &causes.concat(), hint);
    }

    /// Writes what is neither; it may bring its own styles, like clap's messages.
    pub fn note(&mut self, text: &str) {
        // Nobody is left to hear that stderr failed; the exit code still tells.
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
