//! The command line of `trainmon recover`, and what it says.

use std::io;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{RecoverError, RecoveredJournal, Recovery, recover};
use crate::failure;
use crate::printer::Printer;
use crate::progress::ProgressBar;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon recover monitor_output/Nov20_16-05-09-rank0-1f0a9c42/journal_rank0.tmj -o rescued\n",
    "  trainmon recover monitor_output -o rescued        every rank, each in a directory of its own\n",
    "  trainmon recover journal_rank0.tmj -o rescued --json | jq '.journals[].faults[]'\n",
    "\n",
    "The files are those the run itself wrote, or would have written, byte for byte, for the steps the journal holds;\n",
    "alerts go to alerts.jsonl. A journal may be read while its run goes on. Steps of the run that are not in the journal are\n",
    "named; those that its ring had no room for any more are not missed.\n",
    "\n",
    "Exit codes: 0 everything was whole, 1 something was torn or is missing (the rest is written), 2 an error"
);

/// So many things that are torn or missing are told one by one.
const MOST_TOLD: usize = 20;

/// What to recover.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The journal, or a directory that holds those of several ranks (or the directories they lie in)
    journal: PathBuf,
    /// The directory to make
    #[arg(long, short)]
    output: PathBuf,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

/// How a recovery went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything was whole.
    Whole,
    /// Something was torn or is missing.
    Torn,
    /// An error; of several journals some may be recovered all the same.
    Failed,
}

/// Recovers, and says how it went.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { journal, output, json } = arguments;
    let mut bar = ProgressBar::new("recovering");
    let result = recover(journal, output, &mut |progress| bar.show(progress));
    drop(bar);
    if *json {
        printer.json(&as_json(&result))?;
        return Ok(outcome(&result));
    }
    match &result {
        Ok(recovery) => {
            for journal in &recovery.journals {
                let path = journal.journal.display();
                for fault in journal.faults.iter().take(MOST_TOLD) {
                    printer.warning(&format!("`{path}`: {fault}"), "", None);
                }
                if let Some(more) = journal.faults.len().checked_sub(MOST_TOLD).filter(|&more| more > 0) {
                    printer.warning(&format!("`{path}`: {more} more; `--json` lists all"), "", None);
                }
            }
            for error in &recovery.unreadable {
                printer.failure(error, Some(error.hint()));
            }
            printer.result(&recovery.journals.iter().map(account).collect::<String>())?;
        }
        Err(error) => printer.failure(error, Some(error.hint())),
    }
    Ok(outcome(&result))
}

fn outcome(result: &Result<Recovery, RecoverError>) -> Outcome {
    match result {
        Ok(recovery) if !recovery.unreadable.is_empty() => Outcome::Failed,
        Ok(recovery) if recovery.is_whole() => Outcome::Whole,
        Ok(_) => Outcome::Torn,
        Err(_) => Outcome::Failed,
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

fn as_json(result: &Result<Recovery, RecoverError>) -> serde_json::Value {
    match result {
        Ok(recovery) => {
            let errors: Vec<_> = recovery.unreadable.iter().map(error_as_json).collect();
            json!({"ok": recovery.is_whole(), "out": recovery.out, "journals": recovery.journals, "errors": errors})
        }
        Err(error) => json!({"ok": false, "out": null, "journals": [], "errors": [error_as_json(error)]}),
    }
}

fn error_as_json(error: &RecoverError) -> serde_json::Value {
    failure::as_json(error, error.hint())
}
