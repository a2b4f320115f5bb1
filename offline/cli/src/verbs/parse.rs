//! The command line of `trainmon parse` and its output, which `trainmon convert` shares for files of tensors.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use trainmon_report::{Outcome, Printer};
use trainmon_tensors::{TensorFormat, convert};

use super::files::{files_as_json, lines};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon parse -d dump/step0/rank0/dump_tensor_data -t npy -o arrays\n",
    "  trainmon parse -d model.safetensors -t pt -o out\n",
    "  trainmon convert --to safetensors checkpoint.pt -o out      the same with trainmon's spelling\n",
    "\n",
    "Reads .pt (as data, without executing anything), .npy, .safetensors and Ascend's .bin; in a directory, every such file. ",
    "A file with several tensors becomes a directory of .npy files. Existing files are not replaced."
);

/// The input and the format.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// A file of tensors, or a directory of them
    #[arg(long = "dump_path", short = 'd', value_name = "PATH")]
    dump_path: PathBuf,
    /// The format
    #[arg(long = "type", short = 't', default_value = "pt", value_name = "FORMAT")]
    to: TensorFormat,
    /// The output directory
    #[arg(long = "output_path", alias = "output", short = 'o', default_value = "./output", value_name = "DIR")]
    output: PathBuf,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

/// Converts and prints the result.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { dump_path, to, output, json } = arguments;
    convert_and_say(dump_path, *to, output, *json, printer)
}

/// Converts files of tensors for a verb that has parsed its arguments.
pub(crate) fn convert_and_say(
    path: &Path,
    to: TensorFormat,
    output: &Path,
    json: bool,
    printer: &mut Printer,
) -> io::Result<Outcome> {
    let converted = convert(path, to, output);
    for note in converted.iter().flat_map(|converted| &converted.notes) {
        printer.note(&format!("note: {note}\n"));
    }
    let files = converted.map(|converted| converted.files);
    printer.answer(&files, json.then(|| files_as_json(&files)), |files| lines(files))?;
    Ok(Outcome::of_work(&files))
}
