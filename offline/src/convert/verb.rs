//! The command line of `trainmon convert`, and what it says.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{ConvertError, Converted, ConvertedRun, to_tensorboard};
use crate::failure;
use crate::printer::Printer;
use crate::progress::ProgressBar;
use crate::tensors::{self, TensorFormat};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon convert --to tensorboard monitor_output/Nov20_16-05-09-rank0-1f0a9c42\n",
    "  trainmon convert --to tensorboard monitor_output -o events     all ranks, each in a directory of its own\n",
    "  trainmon convert --to tensorboard rank_0 --json | jq '.runs[].tags'\n",
    "  tensorboard --logdir events\n",
    "  trainmon convert --to npy dump_tensor_data -o arrays          files of tensors: also pt, safetensors\n",
    "\n",
    "A run is the directory of one rank (files like grad_reduced_0-99.csv), or the directory that holds those of all\n",
    "ranks; msprobe's are read as well. A line torn off by a kill is left out with a warning; any other damage is an\n",
    "error with file, line and column, and nothing is written."
);

/// What to convert.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run: a directory of CSV files, or one that holds those of several ranks; or a file of tensors, or a directory
    /// of them
    run: PathBuf,
    /// The format
    #[arg(long)]
    to: Format,
    /// The directory to make [default: `tensorboard` in the run, `output` for tensors]
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// TensorBoard's event files
    Tensorboard,
    /// numpy's arrays; bfloat16 and float8 become float32
    Npy,
    /// torch's files
    Pt,
    /// safetensors
    Safetensors,
}

/// Converts, and says whether that worked.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<bool> {
    let Arguments { run, to, output, json } = arguments;
    let tensors = match to {
        Format::Tensorboard => None,
        Format::Npy => Some(TensorFormat::Npy),
        Format::Pt => Some(TensorFormat::Pt),
        Format::Safetensors => Some(TensorFormat::Safetensors),
    };
    if let Some(to) = tensors {
        let output = output.as_deref().unwrap_or(Path::new("output"));
        return tensors::verb::convert_and_say(run, to, output, *json, printer);
    }
    let mut bar = ProgressBar::new("converting");
    let outcome = to_tensorboard(run, output.as_deref(), &mut |progress| bar.show(progress));
    drop(bar);
    if *json {
        printer.json(&as_json(&outcome))?;
        return Ok(outcome.is_ok());
    }
    match &outcome {
        Ok(converted) => {
            for warning in &converted.warnings {
                printer.warning(warning, "", None);
            }
            printer.result(&account(converted))?;
        }
        Err(error) => printer.failure(error, Some(error.hint())),
    }
    Ok(outcome.is_ok())
}

fn account(converted: &Converted) -> String {
    let line = |run: &ConvertedRun| {
        let steps = run.steps.map_or_else(|| "no steps".to_owned(), |(first, last)| format!("steps {first} to {last}"));
        let ConvertedRun { out, kinds, tags, values, .. } = run;
        format!("{}: {steps}, {values} values, {tags} tags, {} kinds\n", out.display(), kinds.len())
    };
    let lines: String = converted.runs.iter().map(line).collect();
    lines + &format!("look at it: tensorboard --logdir {}\n", converted.out.display())
}

fn as_json(outcome: &Result<Converted, ConvertError>) -> serde_json::Value {
    match outcome {
        Ok(Converted { out, runs, warnings }) => {
            json!({"ok": true, "out": out, "runs": runs, "warnings": warnings, "error": null})
        }
        Err(error) => {
            let error = failure::as_json(error, error.hint());
            json!({"ok": false, "out": null, "runs": [], "warnings": [], "error": error})
        }
    }
}
