//! The command line of `trainmon convert`, and what it says.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use trainmon_report::{Outcome, Printer, shown};
use trainmon_runs::convert::{Converted, as_json, to_tensorboard};
use trainmon_tensors::TensorFormat;

use super::parse;
use super::what_was_read::say_what_was_read;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon convert --to tensorboard monitor_output -o events     the newest run, each rank in a directory of its own\n",
    "  trainmon convert --to tensorboard monitor_output/train-1123-043812\n",
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
    #[arg(long, short, value_name = "DIR")]
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

/// Converts, and says what came of it.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { run, to, output, json } = arguments;
    let tensors = match to {
        Format::Tensorboard => None,
        Format::Npy => Some(TensorFormat::Npy),
        Format::Pt => Some(TensorFormat::Pt),
        Format::Safetensors => Some(TensorFormat::Safetensors),
    };
    if let Some(to) = tensors {
        let output = output.as_deref().unwrap_or(Path::new("output"));
        return parse::convert_and_say(run, to, output, *json, printer);
    }
    let converted = shown("converting", |tell| to_tensorboard(run, output.as_deref(), tell));
    if let (Ok(converted), false) = (&converted, json) {
        say_what_was_read(printer, "converting", &converted.newest, None, &converted.warnings);
    }
    printer.answer(&converted, json.then(|| as_json(&converted)), Converted::in_words)?;
    Ok(Outcome::of_work(&converted))
}
