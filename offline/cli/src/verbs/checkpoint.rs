//! The command line of `trainmon compare-checkpoint`, and what it says.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use trainmon_checkpoint::{
    CheckpointError, Comparison, Dialect, Format, MSPROBE_FILE, Output, as_json, compare, in_words,
};
use trainmon_report::{Outcome, Printer, ProgressBar};

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

/// Compares, and says what came of it.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let compared = compare_and_write(arguments);
    printer.answer(&compared, arguments.json.then(|| as_json(&compared)), |(comparison, written)| {
        in_words(comparison, written)
    })?;
    Ok(compared.map_or(Outcome::Failed, |(comparison, _)| Outcome::of(!comparison.is_same())))
}

fn compare_and_write(arguments: &Arguments) -> Result<(Comparison, Vec<PathBuf>), CheckpointError> {
    let Arguments { a, b, output, format, compat, json: _ } = arguments;
    let dialect = if *compat { Dialect::Msprobe } else { Dialect::Ours };
    // Asked before hours are spent.
    let output = Output::prepare(output.as_deref(), format, dialect)?;
    let mut bar = ProgressBar::new("comparing");
    let comparison = compare(a, b, dialect, &mut |progress| bar.show(progress))?;
    drop(bar);
    let written = output.write(&comparison)?;
    Ok((comparison, written))
}
