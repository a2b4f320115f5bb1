//! The command line of `trainmon anomaly` and its output.

use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use trainmon_report::{Outcome, Printer};
use trainmon_runs::anomaly::{Analysis, analyse, as_json};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon anomaly -d monitor_output                 the first eight findings of all ranks\n",
    "  trainmon anomaly -d monitor_output/anomaly_detected -k 20 -s \"[100,101]\"\n",
    "  trainmon anomaly -d monitor_output --json | jq '.first | keys'\n",
    "\n",
    "Findings are sorted by step, micro-batch, phase (forward, gradients, moments, update), pipeline stage and ",
    "number of the call. msprobe's files are supported. Exit code 1: there are findings."
);

/// The findings to analyze.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The directory with `rank<R>/anomaly.json`, or the one that contains `anomaly_detected`
    #[arg(short, long = "data-path", alias = "data_path", value_name = "DIR")]
    data: PathBuf,
    /// Write `anomaly_analyse.json` to this directory [default: next to the findings]
    #[arg(short, long = "out-path", alias = "out_path", value_name = "DIR")]
    out: Option<PathBuf>,
    /// The number of findings
    #[arg(short = 'k', long = "topk", value_name = "COUNT", default_value = "8")]
    top: NonZeroUsize,
    /// Only these steps.
    #[arg(
        short,
        long = "step",
        aliases = ["step_list", "step-list"],
        value_name = "LIST",
        value_parser = step_list,
        help = "Only these steps, as a list: \"[1,2]\""
    )]
    steps: Option<Steps>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

/// A list of steps: clap would treat a bare `Vec` as an argument that is passed several times.
#[derive(Clone, Debug)]
struct Steps(Vec<u64>);

fn step_list(text: &str) -> Result<Steps, String> {
    let inner = text.trim();
    let inner = inner.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(inner);
    let steps = inner.split(',').map(str::trim).filter(|step| !step.is_empty());
    let step = |step: &str| {
        step.parse()
            .map_err(|_not_a_number| format!("`{step}` is not a step: expected a list of steps such as \"[1,2]\""))
    };
    steps.map(step).collect::<Result<_, _>>().map(Steps)
}

/// Analyzes the findings and prints the result.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { data, out, top, steps, json } = arguments;
    let steps = steps.as_ref().map_or(&[][..], |steps| &steps.0);
    let analysis = analyse(data, out.as_deref(), top.get(), steps);
    if let (Ok(Analysis { newest: Some(newest), .. }), false) = (&analysis, json) {
        printer.note(&newest.in_words("reading"));
    }
    printer.answer(&analysis, json.then(|| as_json(&analysis)), Analysis::in_words)?;
    Ok(analysis.map_or(Outcome::Failed, |analysis| Outcome::of(analysis.findings > 0)))
}
