//! The result of a conversion, as text and as JSON.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_report::result_as_json;

use super::error::ConvertError;
use trainmon_baseline::NewestRun;

/// The result of a conversion.
#[derive(Debug, Serialize)]
pub struct Converted {
    /// The directory for `tensorboard --logdir`.
    pub out: PathBuf,
    /// The selected run, if the directory contains several.
    pub newest: Option<NewestRun>,
    /// The converted rank directories, by rank.
    pub runs: Vec<ConvertedRun>,
    /// The omitted files, with reasons.
    pub warnings: Vec<String>,
}

/// One run directory.
#[derive(Debug, Default, Serialize)]
pub struct ConvertedRun {
    /// The directory of its CSV files.
    pub source: PathBuf,
    /// The directory of its event files.
    pub out: PathBuf,
    /// The kinds of tensors; each is a run in TensorBoard.
    pub kinds: Vec<String>,
    /// The number of different tags, over all kinds.
    pub tags: usize,
    /// The number of values.
    pub values: u64,
    /// The first and the last step.
    pub steps: Option<(u64, u64)>,
}

impl Converted {
    /// The text for a terminal.
    pub fn in_words(&self) -> String {
        let line = |run: &ConvertedRun| {
            let steps =
                run.steps.map_or_else(|| "no steps".to_owned(), |(first, last)| format!("steps {first} to {last}"));
            let ConvertedRun { out, kinds, tags, values, .. } = run;
            format!("{}: {steps}, {values} values, {tags} tags, {} kinds\n", out.display(), kinds.len())
        };
        let lines: String = self.runs.iter().map(line).collect();
        lines + &format!("next: tensorboard --logdir {}\n", self.out.display())
    }
}

/// The result, or the error, as JSON.
pub fn as_json(outcome: &Result<Converted, ConvertError>) -> Value {
    result_as_json(outcome, json!({"out": null, "newest": null, "runs": [], "warnings": []}))
}
