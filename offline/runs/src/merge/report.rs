//! What came of putting ranks together: to people, and as JSON.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_report::{as_json as failure, first_of};

use super::error::MergeRanksError;
use super::step::LeftOut;
use trainmon_baseline::NewestRun;

/// Ranks that a line names.
const RANKS_SHOWN: usize = 8;

/// A merged run.
#[derive(Debug, Serialize)]
pub struct MergedRun {
    /// The directory made.
    pub out: PathBuf,
    /// Which run was taken of a directory that holds several.
    pub newest: Option<NewestRun>,
    /// Its name.
    pub run: String,
    /// The ranks that were read.
    pub ranks: Vec<u32>,
    /// How many it had.
    pub world_size: u32,
    /// Steps written.
    pub steps: u64,
    /// The first and the last of them.
    pub range: Option<(u64, u64)>,
    /// Rows written.
    pub records: u64,
    /// Steps that some rank lacks.
    pub lacking_ranks: u64,
    /// Rows that are not written since a part of the parameter is missing.
    pub incomplete: u64,
    /// The first of them.
    pub first_incomplete: Option<String>,
    /// The first row whose parts have more elements than the parameter.
    pub first_surplus: Option<String>,
    /// Rows that have no place in a merged run.
    pub left_out: Vec<LeftOutRows>,
    /// What is not as it should be in the files, a sentence each.
    pub warnings: Vec<String>,
}

/// Rows of a kind that have no place in a merged run.
#[derive(Debug, Serialize)]
pub struct LeftOutRows {
    /// The kind.
    pub kind: &'static str,
    /// How many.
    pub rows: u64,
    /// Why.
    pub why: &'static str,
    /// Whether something of the whole model is missing for it.
    pub is_loss: bool,
}

impl LeftOutRows {
    pub(super) fn of(left_out: &LeftOut) -> Vec<Self> {
        left_out
            .iter()
            .map(|(&(kind, why), &rows)| Self { kind: kind.name(), rows, why: why.words(), is_loss: why.is_loss() })
            .collect()
    }
}

impl MergedRun {
    /// Whether every row that the ranks should have together is there.
    pub fn is_whole(&self) -> bool {
        let is_lost = self.left_out.iter().any(|left_out| left_out.is_loss);
        self.incomplete == 0 && self.lacking_ranks == 0 && self.warnings.is_empty() && !is_lost
    }

    /// For a terminal.
    pub fn in_words(&self) -> String {
        let Self { out, ranks, steps, range, records, left_out, .. } = self;
        let listed = first_of(ranks.iter().map(u32::to_string), RANKS_SHOWN);
        let range =
            range.map_or_else(|| "no steps".to_owned(), |(first, last)| format!("{steps} steps, {first} to {last}"));
        let mut text = format!("{}: ranks {listed} as one, {range}, {records} rows\n", out.display());
        for LeftOutRows { kind, rows, why, .. } in left_out.iter().filter(|left_out| !left_out.is_loss) {
            // Writing to a String cannot fail.
            writeln!(text, "  left out: {rows} rows of {kind}, {why}").unwrap_or_default();
        }
        text
    }

    /// What is missing, a sentence each.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = self.warnings.clone();
        if self.lacking_ranks > 0 {
            missing.push(format!("{} steps are not there on every rank", self.lacking_ranks));
        }
        for LeftOutRows { kind, rows, why, .. } in self.left_out.iter().filter(|left_out| left_out.is_loss) {
            missing.push(format!("{rows} rows of {kind} are not written: {why}"));
        }
        missing.extend(self.first_surplus.iter().map(|first| format!("the first with more elements: {first}")));
        if let Some(first) = &self.first_incomplete {
            let rows = self.incomplete;
            missing.push(format!(
                "{rows} rows are not written: parts of them are on ranks that were not read; first {first}"
            ));
        }
        missing
    }
}

/// For programs, a failure too.
pub fn as_json(merged: &Result<MergedRun, MergeRanksError>) -> Value {
    match merged {
        Ok(merged) => json!({"ok": merged.is_whole(), "merged": merged, "error": null}),
        Err(error) => json!({"ok": false, "merged": null, "error": failure(error)}),
    }
}
