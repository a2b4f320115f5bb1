//! The command line of `trainmon merge`, and what it says.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::{Choice, Format, MergeError, merge};
use crate::failure;
use crate::printer::Printer;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon compare dump_b/step0 dump_a/step0 -o tables && trainmon merge -i tables -o merged\n",
    "  trainmon merge -i tables -o merged --api Distributed --column 'Max diff,Result' --format csv\n",
    "  trainmon merge_result -i tables -o merged -config merge.yaml      msprobe's spelling and file\n",
    "\n",
    "Reads compare_result_rank*.csv and .xlsx of trainmon and of msprobe. Where a cell has no number, both maxima stand."
);

/// msprobe's spellings.
pub(crate) const SPELLINGS: [(&str, &str); 1] = [("-config", "--config-path")];

/// What to merge.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The directory of the ranks' tables
    #[arg(long = "input_dir", alias = "input-dir", short = 'i', value_name = "DIR")]
    input: PathBuf,
    /// The directory for the merged table
    #[arg(long = "output_dir", alias = "output-dir", short = 'o', value_name = "DIR")]
    output: PathBuf,
    /// A file of both following options, `{api: [...], compare_index: [...]}`: -config
    #[arg(long, value_name = "YAML", conflicts_with_all = ["api", "columns"])]
    config_path: Option<PathBuf>,
    /// Only values whose names begin like this
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    api: Vec<String>,
    /// Only these columns, by their headers
    #[arg(long = "column", value_name = "HEADER", value_delimiter = ',')]
    columns: Vec<String>,
    /// Which files
    #[arg(long, value_enum, value_delimiter = ',', default_value = "xlsx")]
    format: Vec<Format>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

/// Merges, and says whether that worked.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<bool> {
    let Arguments { input, output, config_path, api, columns, format, json: as_json } = arguments;
    let choice = match config_path {
        Some(path) => read(path),
        None => Ok(Choice { api: api.clone(), compare_index: columns.clone() }),
    };
    let outcome = choice.and_then(|choice| merge(input, output, &choice, format));
    if *as_json {
        let value = match &outcome {
            Ok(files) => json!({"ok": true, "files": files, "error": null}),
            Err(error) => json!({"ok": false, "files": [], "error": failure::as_json(error, error.hint())}),
        };
        printer.json(&value)?;
        return Ok(outcome.is_ok());
    }
    match &outcome {
        Ok(files) => {
            for file in files {
                printer.result(&format!("{}\n", file.display()))?;
            }
        }
        Err(error) => printer.failure(error, Some(error.hint())),
    }
    Ok(outcome.is_ok())
}

fn read(path: &Path) -> Result<Choice, MergeError> {
    let text = std::fs::read_to_string(path).map_err(|source| MergeError::read(path, source))?;
    serde_saphyr::from_str(&text)
        .map_err(|source| MergeError::Choice { path: path.to_path_buf(), source: Box::new(source) })
}
