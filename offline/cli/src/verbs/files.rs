//! Prints the files that a command wrote.

use std::path::PathBuf;

use serde_json::{Value, json};
use trainmon_report::{Advise, as_json};

/// One line per file.
pub(super) fn lines(files: &[PathBuf]) -> String {
    files.iter().fold(String::new(), |text, file| text + &file.display().to_string() + "\n")
}

/// The files that a command wrote, or its error.
pub(super) fn files_as_json(files: &Result<Vec<PathBuf>, impl Advise>) -> Value {
    match files {
        Ok(files) => json!({"ok": true, "files": files, "error": null}),
        Err(error) => json!({"ok": false, "files": [], "error": as_json(error)}),
    }
}
