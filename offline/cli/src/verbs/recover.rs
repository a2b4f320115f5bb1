//! The command line of `trainmon recover` and its output.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use trainmon_report::{Advise as _, Outcome, Printer, shown};
use trainmon_runs::recover::{CaptureRecovery, Recovery, as_json, captures_as_json, recover, recover_captures};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon recover monitor_output -o rescued        the newest run: a directory for every rank\n",
    "  trainmon recover monitor_output/train-1123-043812/rank_0/journal_rank0.tmj -o rescued\n",
    "  trainmon recover dump_path                        interrupted captures, in place\n",
    "  trainmon recover journal_rank0.tmj -o rescued --json | jq '.journals[].faults[]'\n",
    "\n",
    "For the steps in the journal, the files equal those that the run wrote or would have written, byte for byte; alerts ",
    "are written to alerts.jsonl. A journal may be read while its run continues. Steps that the run did not write to the ",
    "journal are listed; overwritten steps are not.\n",
    "\n",
    "Without -o, captures are recovered: dump.json and its companions are created from the record file that a killed ",
    "process leaves. An entry that was being written is lost. A capture writes tensor files after the calls: missing ",
    "tensor files are listed, and the entries contain all other data.\n",
    "\n",
    "Exit codes: 0 complete, 1 something is damaged or missing (the rest is written), 2 an error"
);

/// The largest number of damaged or missing items that are listed individually.
const MOST_TOLD: usize = 20;

/// The input and the output.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The journal, or a directory with the journals of several ranks; without -o, the directory of a capture, of one
    /// of its steps or of all steps
    journal: PathBuf,
    /// The directory to create for the content of a journal
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

/// Recovers the files and prints the result.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { journal, output, json } = arguments;
    let Some(output) = output else { return run_captures(journal, *json, printer) };
    let recovery = shown("recovering", |progress| recover(journal, output, progress));
    if let (Ok(recovery), false) = (&recovery, json) {
        if let Some(newest) = &recovery.newest {
            printer.note(&newest.in_words("recovering"));
        }
        for journal in &recovery.journals {
            let path = journal.journal.display();
            for fault in journal.faults.iter().take(MOST_TOLD) {
                printer.warning(&format!("`{path}`: {fault}"), "", None);
            }
            if let Some(more) = journal.faults.len().checked_sub(MOST_TOLD).filter(|&more| more > 0) {
                printer.warning(&format!("`{path}`: {more} more; to list all, use `--json`"), "", None);
            }
        }
        for error in &recovery.unreadable {
            printer.failure(error, Some(error.hint()));
        }
    }
    printer.answer(&recovery, json.then(|| as_json(&recovery)), Recovery::in_words)?;
    Ok(match recovery {
        Ok(recovery) if recovery.unreadable.is_empty() => Outcome::of(!recovery.is_whole()),
        _ => Outcome::Failed,
    })
}

fn run_captures(path: &Path, json: bool, printer: &mut Printer) -> io::Result<Outcome> {
    let recovery = recover_captures(path);
    if let (Ok(recovery), false) = (&recovery, json) {
        for error in &recovery.failures {
            printer.failure(error, Some(error.hint()));
        }
    }
    printer.answer(&recovery, json.then(|| captures_as_json(&recovery)), CaptureRecovery::in_words)?;
    Ok(match recovery {
        Ok(recovery) if recovery.failures.is_empty() => Outcome::of(!recovery.is_whole()),
        _ => Outcome::Failed,
    })
}
