//! The command line of `trainmon recover`, and what it says.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use trainmon_report::{Advise as _, Outcome, Printer, shown};
use trainmon_runs::recover::{CaptureRecovery, Recovery, as_json, captures_as_json, recover, recover_captures};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon recover monitor_output -o rescued        the newest run: every rank, each in a directory of its own\n",
    "  trainmon recover monitor_output/train-1123-043812/rank_0/journal_rank0.tmj -o rescued\n",
    "  trainmon recover dump_path                        captures that were cut short, in their own place\n",
    "  trainmon recover journal_rank0.tmj -o rescued --json | jq '.journals[].faults[]'\n",
    "\n",
    "The files are those the run itself wrote, or would have written, byte for byte, for the steps the journal holds;\n",
    "alerts go to alerts.jsonl. A journal may be read while its run goes on. Steps of the run that are not in the journal are\n",
    "named; those that its ring had no room for any more are not missed.\n",
    "\n",
    "Without -o it is captures that are recovered: dump.json and what lies beside it are made of the record file that a\n",
    "capture leaves when its process is killed. The entry that was being written is lost. A capture of tensors writes their\n",
    "files behind the calls: what was not written yet is named, and the entries say all else of it.\n",
    "\n",
    "Exit codes: 0 everything was whole, 1 something was torn or is missing (the rest is written), 2 an error"
);

/// So many things that are torn or missing are told one by one.
const MOST_TOLD: usize = 20;

/// What to recover.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The journal, or a directory that holds those of several ranks (or the directories they lie in); without -o the
    /// directory of a capture, of one of its steps or of all
    journal: PathBuf,
    /// The directory to make for what comes out of a journal
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

/// Recovers, and says what came of it.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { journal, output, json } = arguments;
    let Some(output) = output else { return run_captures(journal, *json, printer) };
    let recovery = shown("recovering", |tell| recover(journal, output, tell));
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
                printer.warning(&format!("`{path}`: {more} more; `--json` lists all"), "", None);
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
