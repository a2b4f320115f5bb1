//! The verbs: the arguments of each, and how they are turned into a call.

pub(crate) mod anomaly;
pub(crate) mod check_config;
pub(crate) mod checkpoint;
pub(crate) mod compare;
pub(crate) mod compare_runs;
pub(crate) mod convert;
pub(crate) mod ctl;
pub(crate) mod merge;
pub(crate) mod overflow;
pub(crate) mod parse;
pub(crate) mod recover;

use std::path::PathBuf;

use serde_json::{Value, json};
use trainmon_report::{Advise, as_json};

/// A line per file.
fn lines(files: &[PathBuf]) -> String {
    files.iter().fold(String::new(), |text, file| text + &file.display().to_string() + "\n")
}

/// The files a command wrote, or why it did not.
fn files_as_json(files: &Result<Vec<PathBuf>, impl Advise>) -> Value {
    match files {
        Ok(files) => json!({"ok": true, "files": files, "error": null}),
        Err(error) => json!({"ok": false, "files": [], "error": as_json(error)}),
    }
}
