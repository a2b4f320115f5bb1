//! The command line of `trainmon compare-checkpoint` and its output.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use trainmon_checkpoint::{CheckpointError, Comparison, Dialect, Format, Output, as_json, compare, in_words};
use trainmon_report::{Outcome, Printer, shown};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon compare-checkpoint ckpt_a/model.pt ckpt_b/model.pt\n",
    "  trainmon compare-checkpoint run_tp1 run_tp2pp2 -o report          merges Megatron's ranks\n",
    "  trainmon compare-checkpoint zero3/global_step100 hf_model -o report --format csv\n",
    "  trainmon compare-checkpoint new old --compat                      writes msprobe's ckpt_similarity.json\n",
    "\n",
    "A checkpoint is a file (.pt, .safetensors, .npy) or a directory of Megatron, DeepSpeed, torch distributed (FSDP) ",
    "or Hugging Face. Pickles are read as data and never executed. `rounding`: no element differs by more than one ",
    "unit in the last place of the coarser dtype.\n",
    "\n",
    "Exit codes: 0 equal within rounding, 1 tensors differ or are missing on one side, 2 an error"
);

/// The checkpoints and the output.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The checkpoint to check
    target: PathBuf,
    /// The baseline to compare with
    golden: PathBuf,
    /// Write the report to this directory
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The formats of the report
    #[arg(long, value_delimiter = ',', default_values = ["json", "csv", "html"], requires = "output")]
    format: Vec<Format>,
    /// Write msprobe's JSON, `ckpt_similarity.json`, and merge ranks like msprobe
    #[arg(long, conflicts_with = "format")]
    compat: bool,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The arguments that `trainmon compare` passes for checkpoints.
    pub(crate) fn of((target, golden): (&Path, &Path), output: Option<&Path>, compat: bool, json: bool) -> Self {
        let format = vec![Format::Json, Format::Csv, Format::Html];
        let output = output.map(Path::to_path_buf);
        let (target, golden) = (target.to_path_buf(), golden.to_path_buf());
        Self { target, golden, output, format, compat, json }
    }
}

/// Compares the checkpoints and prints the result.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let compared = compare_and_write(arguments);
    printer.answer(&compared, arguments.json.then(|| as_json(&compared)), |(comparison, written)| {
        in_words(comparison, written)
    })?;
    Ok(compared.map_or(Outcome::Failed, |(comparison, _)| Outcome::of(!comparison.is_same())))
}

fn compare_and_write(arguments: &Arguments) -> Result<(Comparison, Vec<PathBuf>), CheckpointError> {
    let Arguments { target, golden, output, format, compat, json: _ } = arguments;
    let dialect = if *compat { Dialect::Msprobe } else { Dialect::Ours };
    // Checked before a comparison that may take hours.
    let output = Output::prepare(output.as_deref(), format, dialect)?;
    let comparison = shown("comparing", |progress| compare(target, golden, dialect, progress))?;
    let written = output.write(&comparison)?;
    Ok((comparison, written))
}
