//! The command line of `trainmon anomaly`, and what it says.

use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::{Analysis, AnomalyError, analyse};
use crate::failure;
use crate::printer::Printer;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon anomaly -d monitor_output                 the first eight findings of all ranks\n",
    "  trainmon anomaly -d monitor_output/anomaly_detected -k 20 -s \"[100,101]\"\n",
    "  trainmon anomaly -d monitor_output --json | jq '.first | keys'\n",
    "\n",
    "A finding's place: step, micro-batch, forward before gradients before moments before the update, pipeline stage,\n",
    "number of the call. msprobe's files are read as well. Exit code 1: there are findings."
);

/// What to look at.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The directory with `rank<R>/anomaly.json`, or the one that holds its `anomaly_detected`
    #[arg(short, long = "data-path", alias = "data_path", value_name = "DIR")]
    data: PathBuf,
    /// Where `anomaly_analyse.json` is written [default: beside the findings]
    #[arg(short, long = "out-path", alias = "out_path", value_name = "DIR")]
    out: Option<PathBuf>,
    /// How many findings
    #[arg(short = 'k', long = "topk", value_name = "COUNT", default_value = "8")]
    top: NonZeroUsize,
    /// Only these steps, as a list: "[1,2]"
    #[arg(short, long = "step", aliases = ["step_list", "step-list"], value_name = "LIST", value_parser = step_list)]
    steps: Option<Steps>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

/// A list of steps: clap would take a bare `Vec` for an argument given several times.
#[derive(Clone, Debug)]
struct Steps(Vec<u64>);

fn step_list(text: &str) -> Result<Steps, String> {
    let inner = text.trim();
    let inner = inner.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(inner);
    let steps = inner.split(',').map(str::trim).filter(|step| !step.is_empty());
    let step = |step: &str| {
        step.parse().map_err(|_not_a_number| format!("expected a list of steps like \"[1,2]\", found `{step}`"))
    };
    steps.map(step).collect::<Result<_, _>>().map(Steps)
}

/// How it went.
pub(crate) enum Outcome {
    /// No finding.
    Well,
    /// Findings.
    Findings,
    /// An error.
    Failed,
}

/// Analyses and tells.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { data, out, top, steps, json } = arguments;
    let steps = steps.as_ref().map_or(&[][..], |steps| &steps.0);
    let analysis = analyse(data, out.as_deref(), top.get(), steps);
    match &analysis {
        _ if *json => printer.json(&as_json(&analysis))?,
        Ok(analysis) => printer.result(&account(analysis))?,
        Err(error) => printer.failure(error, Some(error.hint())),
    }
    Ok(match analysis {
        Ok(Analysis { findings: 0, .. }) => Outcome::Well,
        Ok(_) => Outcome::Findings,
        Err(_) => Outcome::Failed,
    })
}

fn account(analysis: &Analysis) -> String {
    let Analysis { out, files, findings, first } = analysis;
    let message = |entry: &Value| format!("{}: {}\n", entry["step"], entry["message"].as_str().unwrap_or("?"));
    let lines: String = first.values().map(message).collect();
    let ranks = if files.len() == 1 { "1 rank".to_owned() } else { format!("{} ranks", files.len()) };
    format!("{lines}{} of {findings} findings of {ranks}; in {}\n", first.len(), out.display())
}

fn as_json(analysis: &Result<Analysis, AnomalyError>) -> Value {
    match analysis {
        Ok(Analysis { out, files, findings, first }) => {
            json!({"ok": true, "out": out, "files": files, "findings": findings, "first": first, "error": null})
        }
        Err(error) => {
            let error = failure::as_json(error, error.hint());
            json!({"ok": false, "out": null, "files": [], "findings": 0, "first": {}, "error": error})
        }
    }
}
