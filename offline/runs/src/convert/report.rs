//! What was converted, and what that says: to people, and as JSON.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_report::result_as_json;

use super::error::ConvertError;
use trainmon_baseline::NewestRun;

/// What was converted.
#[derive(Debug, Serialize)]
pub struct Converted {
    /// The directory for `tensorboard --logdir`.
    pub out: PathBuf,
    /// Which run was taken of a directory that holds several.
    pub newest: Option<NewestRun>,
    /// One per rank's directory, by rank.
    pub runs: Vec<ConvertedRun>,
    /// What was left out, and why.
    pub warnings: Vec<String>,
}

/// One run directory.
#[derive(Debug, Default, Serialize)]
pub struct ConvertedRun {
    /// Where its CSV files lie.
    pub source: PathBuf,
    /// The directory of its event files.
    pub out: PathBuf,
    /// Kinds of tensors, each a run to TensorBoard.
    pub kinds: Vec<String>,
    /// Different tags, over all kinds.
    pub tags: usize,
    /// Numbers written.
    pub values: u64,
    /// The first and the last step.
    pub steps: Option<(u64, u64)>,
}

impl Converted {
    /// For a terminal.
    pub fn in_words(&self) -> String {
        let line = |run: &ConvertedRun| {
            let steps =
                run.steps.map_or_else(|| "no steps".to_owned(), |(first, last)| format!("steps {first} to {last}"));
            let ConvertedRun { out, kinds, tags, values, .. } = run;
            format!("{}: {steps}, {values} values, {tags} tags, {} kinds\n", out.display(), kinds.len())
        };
        let lines: String = self.runs.iter().map(line).collect();
        lines + &format!("look at it: tensorboard --logdir {}\n", self.out.display())
    }
}

/// For programs, a failure too.
pub fn as_json(outcome: &Result<Converted, ConvertError>) -> Value {
    result_as_json(outcome, json!({"out": null, "newest": null, "runs": [], "warnings": []}))
}
