//! What came out of journals, and what that says: to people, and as JSON.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_report::as_json as failure;

use super::error::RecoverError;
use trainmon_baseline::NewestRun;

/// What came out of the journals of a run.
#[derive(Debug, Serialize)]
pub struct Recovery {
    /// The directory made.
    pub out: PathBuf,
    /// Which run was taken of a directory that holds several.
    pub newest: Option<NewestRun>,
    /// One per journal that could be read, by name.
    pub journals: Vec<RecoveredJournal>,
    /// Journals of a directory that could not be read at all.
    #[serde(skip)]
    pub unreadable: Vec<RecoverError>,
}

impl Recovery {
    /// Whether every journal was whole.
    pub fn is_whole(&self) -> bool {
        self.unreadable.is_empty() && self.journals.iter().all(|journal| journal.faults.is_empty())
    }

    /// For a terminal: a line per journal.
    pub fn in_words(&self) -> String {
        self.journals.iter().map(account).collect()
    }
}

/// What came out of one journal.
#[derive(Debug, Serialize)]
pub struct RecoveredJournal {
    /// The file.
    pub journal: PathBuf,
    /// The directory of its CSV files.
    pub out: PathBuf,
    /// The run's name.
    pub run: String,
    /// Its rank.
    pub rank: u32,
    /// Steps written.
    pub steps: usize,
    /// The first and the last of them.
    pub range: Option<(u64, u64)>,
    /// Records written.
    pub records: u64,
    /// Alerts written.
    pub alerts: usize,
    /// Whether the run ended in order. If not, it was ended from outside, or is still at work.
    pub ended_in_order: bool,
    /// What was torn or is missing, one sentence each.
    pub faults: Vec<String>,
}

fn account(journal: &RecoveredJournal) -> String {
    let RecoveredJournal { out, rank, steps, range, records, alerts, ended_in_order, faults, .. } = journal;
    let range =
        range.map_or_else(|| "no steps".to_owned(), |(first, last)| format!("{steps} steps, {first} to {last}"));
    let ending = if *ended_in_order { "" } else { "; the run did not end in order, or is still at work" };
    let torn = match faults.len() {
        0 => String::new(),
        count => format!("; {count} thing{} torn or missing", if count == 1 { "" } else { "s" }),
    };
    format!("{}: rank {rank}, {range}, {records} records, {alerts} alerts{ending}{torn}\n", out.display())
}

/// For programs, a failure too.
pub fn as_json(result: &Result<Recovery, RecoverError>) -> Value {
    match result {
        Ok(recovery) => {
            let errors: Vec<_> = recovery.unreadable.iter().map(failure).collect();
            json!({"ok": recovery.is_whole(), "out": recovery.out, "newest": recovery.newest, "journals": recovery.journals, "errors": errors})
        }
        Err(error) => json!({"ok": false, "out": null, "newest": null, "journals": [], "errors": [failure(error)]}),
    }
}
