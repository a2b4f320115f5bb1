//! Messages for the user, printed to standard error unless the caller sets a listener.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use trainmon_core::printable;

/// How severe a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Something is not measured or not delivered.
    Warning,
}

/// A message of the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The severity.
    pub severity: Severity,
    /// The message: one line, or one line per error in a config file. In the summaries at start and end, every line
    /// except the first is indented.
    pub message: String,
    /// Advice for the user.
    pub hint: Option<String>,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Info => "",
            Severity::Warning => "warning: ",
        };
        write!(f, "trainmon: {severity}{}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl Notice {
    /// Prints the notice to standard error. Ignores write errors (a closed stream, a full disk), on which `eprintln!`
    /// would panic.
    pub fn print(&self) {
        drop(self.print_to(&mut io::stderr()));
    }

    /// Prints in a single write, because the ranks of a job share one standard error and separate writes would
    /// interleave.
    fn print_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        out.write_all(format!("{self}\n").as_bytes())
    }
}

/// Receives notices from any thread. A panic in the listener discards that notice: no message of the monitor may stop
/// the training.
#[derive(Clone)]
pub struct Notices(Arc<dyn Fn(&Notice) + Send + Sync>);

impl Notices {
    /// Sends notices to this listener.
    pub fn new(listener: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    /// Prints notices to standard error.
    pub fn stderr() -> Self {
        Self::new(Notice::print)
    }

    /// Drops notices of severity `Info`.
    #[must_use]
    pub fn warnings_only(self) -> Self {
        Self::new(move |notice| {
            if notice.severity >= Severity::Warning {
                self.say(notice);
            }
        })
    }

    /// Sends an informational notice.
    pub fn info(&self, message: impl Into<String>) {
        self.say(&Notice { severity: Severity::Info, message: message.into(), hint: None });
    }

    /// Sends a warning.
    pub fn warn(&self, message: impl Into<String>, hint: Option<String>) {
        self.say(&Notice { severity: Severity::Warning, message: message.into(), hint });
    }

    /// Sends a notice, with the names in it made [`printable`].
    pub fn say(&self, notice: &Notice) {
        let told = match printable(&notice.message) {
            Cow::Borrowed(_) => None,
            Cow::Owned(message) => Some(Notice { message, ..notice.clone() }),
        };
        let notice = told.as_ref().unwrap_or(notice);
        // The panic hook has already reported the panic.
        drop(catch_unwind(AssertUnwindSafe(|| (self.0)(notice))));
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Writes(Vec<String>);

    impl io::Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_notice_is_one_write() -> io::Result<()> {
        let hint = Some("free some space".to_owned());
        let notice = Notice { severity: Severity::Warning, message: "no rows are written".to_owned(), hint };
        let mut writes = Writes(Vec::new());
        notice.print_to(&mut writes)?;
        assert_eq!(writes.0, ["trainmon: warning: no rows are written\n  hint: free some space\n"]);
        Ok(())
    }
}
