//! The result of merging ranks, as text and as JSON.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_report::{as_json as failure, counted, first_of};

use super::error::MergeRanksError;
use super::step::LeftOut;
use trainmon_baseline::NewestRun;

/// The number of ranks that a line lists.
const RANKS_SHOWN: usize = 8;

/// A merged run.
#[derive(Debug, Serialize)]
pub struct MergedRun {
    /// The new directory.
    pub out: PathBuf,
    /// The selected run, if the directory contains several.
    pub newest: Option<NewestRun>,
    /// The run's name.
    pub run: String,
    /// The ranks that were read.
    pub ranks: Vec<u32>,
    /// The number of ranks that the run had.
    pub world_size: u32,
    /// The number of steps written.
    pub steps: u64,
    /// The first and the last step.
    pub range: Option<(u64, u64)>,
    /// The number of rows written.
    pub records: u64,
    /// The number of steps that some rank lacks.
    pub lacking_ranks: u64,
    /// The number of rows that were not written because a part of the parameter is missing.
    pub incomplete: u64,
    /// The first of these rows.
    pub first_incomplete: Option<String>,
    /// The first row whose parts have more elements than the parameter.
    pub first_surplus: Option<String>,
    /// Rows that do not exist in a merged run.
    pub left_out: Vec<LeftOutRows>,
    /// Warnings about the files, a sentence each.
    pub warnings: Vec<String>,
}

/// Rows of a kind that do not exist in a merged run.
#[derive(Debug, Serialize)]
pub struct LeftOutRows {
    /// The kind.
    pub kind: &'static str,
    /// The number of rows.
    pub rows: u64,
    /// The reason.
    pub why: &'static str,
    /// Whether data of the whole model are missing because of it.
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
    /// Whether every expected row was written.
    pub fn is_whole(&self) -> bool {
        let is_lost = self.left_out.iter().any(|left_out| left_out.is_loss);
        self.incomplete == 0 && self.lacking_ranks == 0 && self.warnings.is_empty() && !is_lost
    }

    /// The text for a terminal.
    pub fn in_words(&self) -> String {
        let Self { out, ranks, steps, range, records, left_out, .. } = self;
        let listed = first_of(ranks.iter().map(u32::to_string), RANKS_SHOWN);
        let range =
            range.map_or_else(|| "no steps".to_owned(), |(first, last)| format!("{steps} steps, {first} to {last}"));
        let mut text = format!("{}: merged ranks {listed}, {range}, {records} rows\n", out.display());
        for LeftOutRows { kind, rows, why, .. } in left_out.iter().filter(|left_out| !left_out.is_loss) {
            // Writing to a String cannot fail.
            writeln!(text, "  omitted: {} of {kind}, {why}", counted(*rows, "row", "rows")).unwrap_or_default();
        }
        text
    }

    /// The missing data, a sentence each.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = self.warnings.clone();
        if self.lacking_ranks > 0 {
            let steps = counted(self.lacking_ranks, "step is missing", "steps are missing");
            missing.push(format!("{steps} on some rank"));
        }
        for LeftOutRows { kind, rows, why, .. } in self.left_out.iter().filter(|left_out| left_out.is_loss) {
            missing.push(format!("{} of {kind} not written: {why}", counted(*rows, "row", "rows")));
        }
        missing.extend(self.first_surplus.iter().map(|first| format!("the first with more elements: {first}")));
        if let Some(first) = &self.first_incomplete {
            let rows = counted(self.incomplete, "row", "rows");
            missing.push(format!(
                "{rows} not written, because parts of them are on ranks that were not read; first: {first}"
            ));
        }
        missing
    }
}

/// The result, or the error, as JSON.
pub fn as_json(merged: &Result<MergedRun, MergeRanksError>) -> Value {
    match merged {
        Ok(merged) => json!({"ok": merged.is_whole(), "merged": merged, "error": null}),
        Err(error) => json!({"ok": false, "merged": null, "error": failure(error)}),
    }
}
