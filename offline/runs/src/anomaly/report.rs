//! The result of an analysis, as text and as JSON.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value, json};
use trainmon_report::result_as_json;

use super::error::AnomalyError;
use trainmon_baseline::NewestRun;

/// The first findings.
#[derive(Debug, Serialize)]
pub struct Analysis {
    /// The written file.
    pub out: PathBuf,
    /// The selected run, if the directory contains several.
    pub newest: Option<NewestRun>,
    /// The files read, by rank.
    pub files: Vec<PathBuf>,
    /// The number of findings in the requested steps.
    pub findings: usize,
    /// The first findings by key, in order.
    pub first: Map<String, Value>,
}

impl Analysis {
    /// The text for a terminal.
    pub fn in_words(&self) -> String {
        let Self { out, files, findings, first, .. } = self;
        let message = |entry: &Value| format!("{}: {}\n", entry["step"], entry["message"].as_str().unwrap_or("?"));
        let lines: String = first.values().map(message).collect();
        let ranks = if files.len() == 1 { "1 rank".to_owned() } else { format!("{} ranks", files.len()) };
        format!("{lines}{} of {findings} findings of {ranks}; in {}\n", first.len(), out.display())
    }
}

/// The analysis, or the error, as JSON.
pub fn as_json(analysis: &Result<Analysis, AnomalyError>) -> Value {
    result_as_json(analysis, json!({"out": null, "newest": null, "files": [], "findings": 0, "first": {}}))
}
