//! `dump_error_info.log`: the errors of a capture, each kind once.

use std::collections::HashSet;
use std::fmt::Write as _;

use jiff::Zoned;
use parking_lot::Mutex;
use trainmon_capture_files::RankDirectory;

/// The kinds of errors that were logged.
#[derive(Debug, Default)]
pub(crate) struct ErrorLog {
    told: Mutex<HashSet<String>>,
}

impl ErrorLog {
    /// Appends a message unless one of this kind was logged.
    pub(crate) fn note(&self, directory: &RankDirectory, kind: &str, message: &str, stack: &[String]) {
        if !self.told.lock().insert(kind.to_owned()) {
            return;
        }
        let mut text = format!("[{}] {kind}: {message}\n", Zoned::now().strftime("%Y-%m-%d %H:%M:%S %z"));
        if !stack.is_empty() {
            text.push_str("Call stack (most recent call last):\n");
            for line in stack {
                // Writing to a String does not fail.
                let _written = writeln!(text, "{line}").is_ok();
            }
        }
        text.push('\n');
        // Ignored: a failure to write the error log cannot be reported anywhere else.
        let _written = directory.append_to_error_log(text.as_bytes()).is_ok();
    }
}
