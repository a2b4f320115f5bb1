//! The arguments of `trainmon compare`, in its own spelling and msprobe's.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use trainmon_compare::Format;

/// The arguments.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Arguments {
    /// The run to check: a dump.json or debug.json, the directory of a rank or a step, or the one that contains the
    /// steps; a monitor's output; a checkpoint
    #[arg(required_unless_present = "target_path")]
    pub(super) target: Option<PathBuf>,
    /// The baseline to compare with; additional baselines estimate the variation between runs
    pub(super) golden: Vec<PathBuf>,
    /// msprobe's spelling of TARGET: -tp
    #[arg(long, value_name = "TARGET", conflicts_with = "target", requires = "golden_path")]
    pub(super) target_path: Option<PathBuf>,
    /// msprobe's spelling of GOLDEN: -gp
    #[arg(long, value_name = "GOLDEN", conflicts_with = "golden", requires = "target_path")]
    pub(super) golden_path: Option<PathBuf>,
    /// Write tables to this directory; without it, only the result is printed [default with msprobe's spelling:
    /// ./output]
    #[arg(short, long, value_name = "DIR")]
    pub(super) output_path: Option<PathBuf>,
    /// The tables, and the report [default: csv,html; with msprobe's spelling: csv]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) format: Vec<Format>,
    /// Write a spreadsheet instead of CSV, as msprobe spells it
    #[arg(long)]
    pub(super) xlsx: bool,
    /// Write msprobe's tables cell for cell, including its verdicts and its mistakes
    #[arg(long)]
    pub(super) compat: bool,
    /// Match operators by their order in the sequence of calls instead of by number: -fm
    #[arg(long)]
    pub(super) fuzzy_match: bool,
    /// A file of lines `name in the target: name in the golden`, with whole names of values: -dm
    #[arg(long, value_name = "YAML")]
    pub(super) data_mapping: Option<PathBuf>,
    /// The same for modules, `path.Class: path.Class`; without a file, only Cell becomes Module: -cm
    #[arg(long, value_name = "YAML", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "how clap says that the file may be left out")]
    pub(super) cell_mapping: Option<Option<PathBuf>>,
    /// Match modules by their paths below a class, `class: {path: path}`, with the operators in them; ignored with
    /// --compat: -lm
    #[arg(long, value_name = "YAML", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "how clap says that the file may be left out")]
    pub(super) layer_mapping: Option<Option<PathBuf>>,
    /// Match operators of two frameworks, a list of `{ms_api, pt_api, ms_args, pt_args, …}`; without a file, by family:
    /// -am
    #[arg(long, value_name = "YAML", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "how clap says that the file may be left out")]
    pub(super) api_mapping: Option<Option<PathBuf>>,
    /// msprobe's switch for the first difference, which is always searched; with -tp or --compat, its JSON is written:
    /// -da
    #[arg(long)]
    pub(super) diff_analyze: bool,
    /// The tolerances for rounding: configs/compare.toml contains every key
    #[arg(long, value_name = "TOML")]
    pub(super) thresholds: Option<PathBuf>,
    /// The level from which on the exit code is 1: error for a divergence or an undecided comparison; warning also for
    /// calls or ranks without a counterpart and unreadable tensors
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(super) fail_on: Option<FailOn>,
    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Print the name of every operator during the comparison: `-tensor_log`
    #[arg(long)]
    pub(super) is_print_compare_log: bool,
    /// msprobe's switch; the kind of the paths is detected. Dumps of offline models, torchair and ATB are not supported
    #[arg(short, long, value_parser = ["auto"])]
    pub(super) mode: Option<String>,
}

/// The level from which on the exit code is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FailOn {
    /// A divergence, or an undecided comparison.
    Error,
    /// Also something without a counterpart.
    Warning,
    /// Never, like msprobe; the default with its spelling.
    Never,
}

/// The target and the baselines, in either spelling.
pub(super) fn paths(arguments: &Arguments) -> (&Path, Vec<PathBuf>) {
    let target = arguments.target.as_deref().or(arguments.target_path.as_deref()).unwrap_or(Path::new(""));
    (target, arguments.golden_path.iter().chain(&arguments.golden).cloned().collect())
}

/// The requested level, or the default of the spelling.
pub(super) fn level(arguments: &Arguments) -> FailOn {
    let default = if arguments.target_path.is_some() { FailOn::Never } else { FailOn::Error };
    arguments.fail_on.unwrap_or(default)
}
