//! The command line of `trainmon merge` and its output.

use std::io;
use std::path::PathBuf;

use clap::Args;
use trainmon_compare::merge::{Choice, Format, merge};
use trainmon_report::{Outcome, Printer};

use super::files::{files_as_json, lines};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon compare dump_b/step0 dump_a/step0 -o tables && trainmon merge -i tables -o merged\n",
    "  trainmon merge -i tables -o merged --api Distributed --column 'Max diff,Result' --format csv\n",
    "  trainmon merge_result -i tables -o merged -config merge.yaml      msprobe's spelling and file\n",
    "\n",
    "Reads compare_result_rank*.csv and .xlsx of trainmon and msprobe. For cells without a number, both maxima are printed."
);

/// msprobe's spellings of options.
pub(crate) const SPELLINGS: [(&str, &str); 1] = [("-config", "--config-path")];

/// The tables and the output.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The directory with the ranks' tables
    #[arg(long = "input_dir", alias = "input-dir", short = 'i', value_name = "DIR")]
    input: PathBuf,
    /// The directory for the merged table
    #[arg(long = "output_dir", alias = "output-dir", short = 'o', value_name = "DIR")]
    output: PathBuf,
    /// A file with the two following options, `{api: [...], compare_index: [...]}`: -config
    #[arg(long, value_name = "YAML", conflicts_with_all = ["api", "columns"])]
    config_path: Option<PathBuf>,
    /// Only values whose names start with one of these prefixes
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    api: Vec<String>,
    /// Only these columns, by header
    #[arg(long = "column", value_name = "HEADER", value_delimiter = ',')]
    columns: Vec<String>,
    /// The formats to write
    #[arg(long, value_enum, value_delimiter = ',', default_value = "xlsx")]
    format: Vec<Format>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

/// Merges the tables and prints the result.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { input, output, config_path, api, columns, format, json } = arguments;
    let choice = match config_path {
        Some(path) => Choice::read(path),
        None => Ok(Choice { api: api.clone(), compare_index: columns.clone() }),
    };
    let files = choice.and_then(|choice| merge(input, output, &choice, format));
    printer.answer(&files, json.then(|| files_as_json(&files)), |files| lines(files))?;
    Ok(Outcome::of_work(&files))
}
