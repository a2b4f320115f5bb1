//! The arguments of `trainmon compare`, in its own spelling and msprobe's.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use trainmon_compare::Format;

/// The arguments.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Arguments {
    /// The run in question: a dump.json or debug.json, a rank's directory, a step's, or the one that holds the steps; a
    /// monitor's output; a checkpoint
    #[arg(required_unless_present = "target_path")]
    pub(super) target: Option<PathBuf>,
    /// The run to hold it against; of several, the others say how far such runs are apart anyway
    pub(super) golden: Vec<PathBuf>,
    /// msprobe's spelling of TARGET: -tp
    #[arg(long, value_name = "TARGET", conflicts_with = "target", requires = "golden_path")]
    pub(super) target_path: Option<PathBuf>,
    /// msprobe's spelling of GOLDEN: -gp
    #[arg(long, value_name = "GOLDEN", conflicts_with = "golden", requires = "target_path")]
    pub(super) golden_path: Option<PathBuf>,
    /// Write tables there; without it (and with msprobe's spelling: ./output) only the answer is printed
    #[arg(short, long, value_name = "DIR")]
    pub(super) output_path: Option<PathBuf>,
    /// Which tables, and the report: csv,html if nothing is said, csv with msprobe's spelling
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) format: Vec<Format>,
    /// A spreadsheet instead of CSV, as msprobe spells it
    #[arg(long)]
    pub(super) xlsx: bool,
    /// msprobe's tables cell for cell: its verdicts, and its mistakes
    #[arg(long)]
    pub(super) compat: bool,
    /// Pair operators by their place in the sequence of calls, not by number: -fm
    #[arg(long)]
    pub(super) fuzzy_match: bool,
    /// A file of lines `name in the target: name in the golden`, whole names of values: -dm
    #[arg(long, value_name = "YAML")]
    pub(super) data_mapping: Option<PathBuf>,
    /// The same for modules, `path.Class: path.Class`; without a file only Cell becomes Module: -cm
    #[arg(long, value_name = "YAML", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "how clap says that the file may be left out")]
    pub(super) cell_mapping: Option<Option<PathBuf>>,
    /// Modules by their paths below a class, `class: {path: path}`, with the operators in them; --compat ignores it: -lm
    #[arg(long, value_name = "YAML", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "how clap says that the file may be left out")]
    pub(super) layer_mapping: Option<Option<PathBuf>>,
    /// Operators of two frameworks, a list of `{ms_api, pt_api, ms_args, pt_args, …}`; without a file by family: -am
    #[arg(long, value_name = "YAML", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "how clap says that the file may be left out")]
    pub(super) api_mapping: Option<Option<PathBuf>>,
    /// msprobe's switch for the first difference; it is always looked for. With -tp or --compat its JSON is written:
    /// -da
    #[arg(long)]
    pub(super) diff_analyze: bool,
    /// What counts as rounding: configs/compare.toml has every key
    #[arg(long, value_name = "TOML")]
    pub(super) thresholds: Option<PathBuf>,
    /// Exit code 1 from which level on: error, if they part or nobody can tell; warning, also if calls or ranks
    /// have no counterpart or tensors cannot be read
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(super) fail_on: Option<FailOn>,
    /// Print the answer as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Name every operator as it is compared: `-tensor_log`
    #[arg(long)]
    pub(super) is_print_compare_log: bool,
    /// msprobe's switch; what the paths are is seen by itself, dumps of offline models, torchair and ATB are not read
    #[arg(short, long, value_parser = ["auto"])]
    pub(super) mode: Option<String>,
}

/// From which level on the exit code is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FailOn {
    /// They part, or nobody can tell.
    Error,
    /// That, or something has no counterpart.
    Warning,
    /// Never, as msprobe does; the default with its spelling.
    Never,
}

/// The target, and what it is held against, in either spelling.
pub(super) fn paths(arguments: &Arguments) -> (&Path, Vec<PathBuf>) {
    let target = arguments.target.as_deref().or(arguments.target_path.as_deref()).unwrap_or(Path::new(""));
    (target, arguments.golden_path.iter().chain(&arguments.golden).cloned().collect())
}

/// What is asked for, or what the spelling promises.
pub(super) fn level(arguments: &Arguments) -> FailOn {
    let default = if arguments.target_path.is_some() { FailOn::Never } else { FailOn::Error };
    arguments.fail_on.unwrap_or(default)
}
