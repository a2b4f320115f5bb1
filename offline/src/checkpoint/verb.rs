//! The command line of `trainmon compare-checkpoint`, and what it says.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{CheckpointError, Comparison, Dialect, compare, page, report};
use crate::failure;
use crate::printer::Printer;
use crate::progress::ProgressBar;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon compare-checkpoint ckpt_a/model.pt ckpt_b/model.pt\n",
    "  trainmon compare-checkpoint run_tp1 run_tp2pp2 -o report.json     Megatron's ranks are put together\n",
    "  trainmon compare-checkpoint zero3/global_step100 hf_model -o report --format json,csv,html\n",
    "  trainmon compare-checkpoint a b --compat                          ckpt_similarity.json, as msprobe writes it\n",
    "\n",
    "A checkpoint is a file (.pt, .safetensors, .npy) or the directory of one: Megatron, DeepSpeed, torch distributed\n",
    "(FSDP), Hugging Face. Pickles are read as data and never executed. `rounding`: no element differs by more than one\n",
    "unit in the last place of the coarser dtype.\n",
    "\n",
    "Exit codes: 0 the same within rounding, 1 something differs or is on one side only, 2 an error"
);

/// msprobe's name for its result.
const MSPROBE_FILE: &str = "ckpt_similarity.json";

/// What to compare.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The first checkpoint
    a: PathBuf,
    /// The second
    b: PathBuf,
    /// The file to write; with several formats their endings are put to its name
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// The formats of the file [default: by its ending, else json]
    #[arg(long, value_delimiter = ',')]
    format: Vec<Format>,
    /// Write msprobe's JSON [default file: `ckpt_similarity.json`] and put ranks together as it does
    #[arg(long, conflicts_with = "format")]
    compat: bool,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// What `trainmon compare` was given, where it finds checkpoints: its output is a directory.
    pub(crate) fn of((a, b): (&Path, &Path), output: Option<&Path>, compat: bool, json: bool) -> Self {
        let name = if compat { MSPROBE_FILE } else { "compare" };
        let format =
            if compat || output.is_none() { Vec::new() } else { vec![Format::Json, Format::Csv, Format::Html] };
        Self {
            a: a.to_path_buf(),
            b: b.to_path_buf(),
            output: output.map(|directory| directory.join(name)),
            format,
            compat,
            json,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Everything
    Json,
    /// A row per tensor
    Csv,
    /// One page for a browser
    Html,
}

/// How a comparison went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The same within rounding.
    Same,
    /// Something differs.
    Different,
    /// An error.
    Failed,
}

/// Compares, and says how it went.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let outcome = compare_and_write(arguments);
    let code = match &outcome {
        Ok((comparison, _)) if comparison.is_same() => Outcome::Same,
        Ok(_) => Outcome::Different,
        Err(_) => Outcome::Failed,
    };
    if arguments.json {
        let value = match &outcome {
            Ok((comparison, written)) => {
                let mut value = report::json(comparison);
                value["written"] = json!(written);
                value["error"] = Value::Null;
                value
            }
            Err(error) => json!({"same": null, "error": failure::as_json(error, error.hint())}),
        };
        printer.json(&value)?;
        return Ok(code);
    }
    match &outcome {
        Ok((comparison, written)) => {
            let files: Vec<String> = written.iter().map(|path| format!("written: {}\n", path.display())).collect();
            printer.result(&(report::text(comparison) + &files.concat()))?;
        }
        Err(error) => printer.failure(error, Some(error.hint())),
    }
    Ok(code)
}

fn compare_and_write(arguments: &Arguments) -> Result<(Comparison, Vec<PathBuf>), CheckpointError> {
    let outputs = outputs(arguments);
    // Asked before hours are spent.
    if let Some((path, _)) = outputs.iter().find(|(path, _)| path.exists()) {
        return Err(CheckpointError::OutputExists { path: path.clone() });
    }
    let dialect = if arguments.compat { Dialect::Msprobe } else { Dialect::Ours };
    let mut bar = ProgressBar::new("comparing");
    let comparison = compare(&arguments.a, &arguments.b, dialect, &mut |progress| bar.show(progress))?;
    drop(bar);
    if let Some(parent) = outputs.first().and_then(|(path, _)| path.parent()) {
        std::fs::create_dir_all(parent)
            .map_err(|source| CheckpointError::Write { path: parent.to_path_buf(), source })?;
    }
    for (path, format) in &outputs {
        let failed = |source| CheckpointError::Write { path: path.clone(), source };
        let content = match format {
            _ if arguments.compat => pretty(&report::msprobe(&comparison)).map_err(failed)?,
            Format::Json => pretty(&report::json(&comparison)).map_err(failed)?,
            Format::Csv => report::csv(&comparison).map_err(|error| failed(error.into()))?,
            Format::Html => page::html(&comparison).into_bytes(),
        };
        write_whole(path, &content)?;
    }
    Ok((comparison, outputs.into_iter().map(|(path, _)| path).collect()))
}

fn outputs(arguments: &Arguments) -> Vec<(PathBuf, Format)> {
    let Arguments { output, format, compat, .. } = arguments;
    let Some(output) = output else {
        return if *compat { vec![(PathBuf::from(MSPROBE_FILE), Format::Json)] } else { Vec::new() };
    };
    match format[..] {
        [] if output.extension().is_some_and(|ending| ending == "csv") => vec![(output.clone(), Format::Csv)],
        [] if output.extension().is_some_and(|ending| ending == "html") => vec![(output.clone(), Format::Html)],
        [] => vec![(output.clone(), Format::Json)],
        [one] => vec![(output.clone(), one)],
        ref several => several.iter().map(|&format| (with_ending(output, format), format)).collect(),
    }
}

fn with_ending(output: &Path, format: Format) -> PathBuf {
    output.with_extension(match format {
        Format::Json => "json",
        Format::Csv => "csv",
        Format::Html => "html",
    })
}

fn pretty(value: &Value) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

/// The file appears whole or not at all, and never in place of another.
fn write_whole(path: &Path, content: &[u8]) -> Result<(), CheckpointError> {
    let failed = |source| CheckpointError::Write { path: path.to_path_buf(), source };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut hidden = tempfile::Builder::new();
    #[cfg(unix)]
    hidden.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = hidden.prefix(".trainmon-unfinished-").tempfile_in(parent).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            Err(CheckpointError::OutputExists { path: path.to_path_buf() })
        }
        Err(error) => Err(failed(error.error)),
    }
}
