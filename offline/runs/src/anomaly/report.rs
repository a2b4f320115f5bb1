//! What an analysis has found, and what it says: to people, and as JSON.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value, json};
use trainmon_report::result_as_json;

use super::error::AnomalyError;
use trainmon_baseline::NewestRun;

/// What came first.
#[derive(Debug, Serialize)]
pub struct Analysis {
    /// The file written.
    pub out: PathBuf,
    /// Which run was taken of a directory that holds several.
    pub newest: Option<NewestRun>,
    /// The files read, by rank.
    pub files: Vec<PathBuf>,
    /// How many findings there are in the steps asked for.
    pub findings: usize,
    /// The first of them, by key, first one first.
    pub first: Map<String, Value>,
}

impl Analysis {
    /// For a terminal.
    pub fn in_words(&self) -> String {
        let Self { out, files, findings, first, .. } = self;
        let message = |entry: &Value| format!("{}: {}\n", entry["step"], entry["message"].as_str().unwrap_or("?"));
        let lines: String = first.values().map(message).collect();
        let ranks = if files.len() == 1 { "1 rank".to_owned() } else { format!("{} ranks", files.len()) };
        format!("{lines}{} of {findings} findings of {ranks}; in {}\n", first.len(), out.display())
    }
}

/// For programs, a failure too.
pub fn as_json(analysis: &Result<Analysis, AnomalyError>) -> Value {
    result_as_json(analysis, json!({"out": null, "newest": null, "files": [], "findings": 0, "first": {}}))
}
