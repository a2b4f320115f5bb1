//! The result of recovering journals, as text and as JSON.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_report::{as_json as failure, counted};

use super::error::RecoverError;
use trainmon_baseline::NewestRun;

/// The result of recovering a run's journals.
#[derive(Debug, Serialize)]
pub struct Recovery {
    /// The new directory.
    pub out: PathBuf,
    /// The selected run, if the directory contains several.
    pub newest: Option<NewestRun>,
    /// The recovered journals, by name.
    pub journals: Vec<RecoveredJournal>,
    /// The errors of unreadable journals in a directory.
    #[serde(skip)]
    pub unreadable: Vec<RecoverError>,
}

impl Recovery {
    /// Whether every journal was complete.
    pub fn is_whole(&self) -> bool {
        self.unreadable.is_empty() && self.journals.iter().all(|journal| journal.faults.is_empty())
    }

    /// The text for a terminal: a line per journal.
    pub fn in_words(&self) -> String {
        self.journals.iter().map(account).collect()
    }
}

/// The result of one journal.
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
    /// The number of steps written.
    pub steps: usize,
    /// The first and the last step.
    pub range: Option<(u64, u64)>,
    /// The number of records written.
    pub records: u64,
    /// The number of alerts written.
    pub alerts: usize,
    /// Whether the run ended regularly. Otherwise it was killed, or is still running.
    pub ended_in_order: bool,
    /// Torn or missing parts, one sentence each.
    pub faults: Vec<String>,
}

fn account(journal: &RecoveredJournal) -> String {
    let RecoveredJournal { out, rank, steps, range, records, alerts, ended_in_order, faults, .. } = journal;
    let range =
        range.map_or_else(|| "no steps".to_owned(), |(first, last)| format!("{steps} steps, {first} to {last}"));
    let ending = if *ended_in_order { "" } else { "; the run did not end regularly or is still running" };
    let torn = match faults.len() {
        0 => String::new(),
        count => format!("; {} torn or missing", counted(count as u64, "part", "parts")),
    };
    format!("{}: rank {rank}, {range}, {records} records, {alerts} alerts{ending}{torn}\n", out.display())
}

/// The result, or the error, as JSON.
pub fn as_json(result: &Result<Recovery, RecoverError>) -> Value {
    match result {
        Ok(recovery) => {
            let errors: Vec<_> = recovery.unreadable.iter().map(failure).collect();
            json!({"ok": recovery.is_whole(), "out": recovery.out, "newest": recovery.newest, "journals": recovery.journals, "errors": errors})
        }
        Err(error) => json!({"ok": false, "out": null, "newest": null, "journals": [], "errors": [failure(error)]}),
    }
}
