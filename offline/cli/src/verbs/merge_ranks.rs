//! The command line of `trainmon merge-ranks` and its output.

use std::io;
use std::path::PathBuf;

use clap::Args;
use trainmon_report::{Outcome, Printer, shown};
use trainmon_runs::merge::{MergedRun, as_json, merge_ranks};

use super::what_was_read::say_what_was_read;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon merge-ranks monitor_output -o whole        the newest run, merged into one rank\n",
    "  trainmon compare fsdp_run single_run                merges automatically if ranks hold different parts\n",
    "  trainmon merge-ranks tp2_run -o whole --json | jq .merged.left_out\n",
    "\n",
    "Each rank's layout.json describes which part of a parameter it holds: a copy, a shard of FSDP, ZeRO or Megatron's ",
    "distributed optimizer, a tensor-parallel slice, or a layer of a pipeline stage. Of several copies, one is used. Parts are ",
    "combined: min, max, norm, mean, std, counts and shares. Rows that belong to one rank (activations, gradients before ",
    "reduction) and statistics that cannot be combined (checksums, update ratios) are skipped and counted.\n",
    "\n",
    "Exit codes: 0 complete, 1 a part or a step is missing (the rest is written), 2 an error"
);

/// The run and the output.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run: its directory, or a directory of runs (the newest is used)
    run: PathBuf,
    /// The directory to create
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

/// Merges the ranks and prints the result.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { run, output, json } = arguments;
    let merged = shown("merging", |progress| merge_ranks(run, output, progress));
    if let (Ok(merged), false) = (&merged, json) {
        say_what_was_read(printer, "merging", &merged.newest, None, &merged.missing());
    }
    printer.answer(&merged, json.then(|| as_json(&merged)), MergedRun::in_words)?;
    Ok(merged.map_or(Outcome::Failed, |merged| Outcome::of(!merged.is_whole())))
}
