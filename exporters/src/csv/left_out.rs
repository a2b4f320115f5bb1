//! What tells readers, and people, which rows are left out.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use trainmon_core::{LEFT_OUT_FILE, LeftOut};

/// The file, before it is written: with the first rows, which make the directory.
#[derive(Debug)]
pub(super) struct LeftOutFile {
    path: PathBuf,
    left_out: LeftOut,
}

impl LeftOutFile {
    pub(super) fn new(directory: &Path, left_out: LeftOut) -> Self {
        Self { path: directory.join(LEFT_OUT_FILE), left_out }
    }

    pub(super) fn write(&self) -> io::Result<()> {
        let told: Map<_, _> =
            self.left_out.in_words().map(|(kind, words)| (kind.to_owned(), Value::from(words))).collect();
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&self.path, format!("{:#}\n", Value::Object(told)))
    }
}
