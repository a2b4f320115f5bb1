//! The command line of `trainmon merge-ranks`, and what it says.

use std::io;
use std::path::PathBuf;

use clap::Args;
use trainmon_report::{Outcome, Printer, shown};
use trainmon_runs::merge::{MergedRun, as_json, merge_ranks};

use super::what_was_read::say_what_was_read;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon merge-ranks monitor_output -o whole        the newest run, its ranks as one\n",
    "  trainmon compare fsdp_run single_run                does so by itself where ranks hold other parts\n",
    "  trainmon merge-ranks tp2_run -o whole --json | jq .merged.left_out\n",
    "\n",
    "Each rank's layout.json says which part of a parameter its rows are of: a copy, a shard of FSDP, ZeRO or Megatron's\n",
    "distributed optimizer, a slice of a tensor-parallel one, a layer of a pipeline stage. Of copies one row is taken, parts\n",
    "are put together: min, max, norm, mean, std, counts and shares. What is each rank's own (activations, gradients before\n",
    "aggregation) and what parts do not tell (checksums, update ratios) is left out and counted.\n",
    "\n",
    "Exit codes: 0 everything was there, 1 a part or a step is missing (the rest is written), 2 an error"
);

/// What to merge.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run: its directory, or the one that holds all runs (the newest is taken)
    run: PathBuf,
    /// The directory to make
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

/// Merges, and says what came of it.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { run, output, json } = arguments;
    let merged = shown("merging", |tell| merge_ranks(run, output, tell));
    if let (Ok(merged), false) = (&merged, json) {
        say_what_was_read(printer, "merging", &merged.newest, None, &merged.missing());
    }
    printer.answer(&merged, json.then(|| as_json(&merged)), MergedRun::in_words)?;
    Ok(merged.map_or(Outcome::Failed, |merged| Outcome::of(!merged.is_whole())))
}
