//! What a recovery says: to people, and as JSON.

use serde_json::{Value, json};
use trainmon_report::as_json as failure;

use super::error::RecoverError;
use super::recovery::{RecoveredJournal, Recovery};

impl Recovery {
    /// For a terminal: a line per journal.
    pub fn in_words(&self) -> String {
        self.journals.iter().map(account).collect()
    }
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
