//! The command line of `trainmon convert` and its output.

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
    "  trainmon convert --to tensorboard monitor_output -o events     the newest run, a directory per rank\n",
    "  trainmon convert --to tensorboard monitor_output/train-1123-043812\n",
    "  trainmon convert --to tensorboard rank_0 --json | jq '.runs[].tags'\n",
    "  tensorboard --logdir events\n",
    "  trainmon convert --to npy dump_tensor_data -o arrays          files of tensors; also pt, safetensors\n",
    "\n",
    "A run is the directory of one rank (files such as grad_reduced_0-99.csv), or the directory of all ranks; msprobe's ",
    "directories are supported. A line truncated by a kill is skipped with a warning; any other damage is an error with ",
    "file, line and column, and nothing is written."
);

/// The input and the format.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run: a directory of CSV files, or one with those of several ranks; or a file of tensors, or a directory of
    /// such files
    run: PathBuf,
    /// The format
    #[arg(long)]
    to: Format,
    /// The directory to create [default: `tensorboard` in the run, `output` for tensors]
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// TensorBoard event files
    Tensorboard,
    /// numpy arrays; bfloat16 and float8 become float32
    Npy,
    /// torch files
    Pt,
    /// safetensors
    Safetensors,
}

/// Converts and prints the result.
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
    let converted = shown("converting", |progress| to_tensorboard(run, output.as_deref(), progress));
    if let (Ok(converted), false) = (&converted, json) {
        say_what_was_read(printer, "converting", &converted.newest, None, &converted.warnings);
    }
    printer.answer(&converted, json.then(|| as_json(&converted)), Converted::in_words)?;
    Ok(Outcome::of_work(&converted))
}
