//! The command line of `trainmon run`, for its help and for shells: the Python package runs the script.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use trainmon_report::{Outcome, Printer};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon run train.py --epochs 3\n",
    "  trainmon run --config monitor.json --name wide train.py --epochs 3\n",
    "  trainmon run --config monitor.json -m my_package.train --epochs 3\n",
    "  torchrun --nproc_per_node=8 -m trainmon run --config monitor.json train.py"
);

/// What to run.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// What is measured, a JSON file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// The run's name (default: the script's, and the time)
    #[arg(long)]
    name: Option<String>,
    /// Say warnings only; so does `TRAINMON_QUIET=1`
    #[arg(long)]
    quiet: bool,
    /// Backward passes per optimizer step (default: found by looking)
    #[arg(long, value_name = "N")]
    grad_acc_steps: Option<String>,
    /// Takes the place of the config's `output_dir`
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output_dir: Option<PathBuf>,
    /// Run a module, as `python -m` does
    #[arg(short, value_name = "MODULE")]
    module: Option<String>,
    /// The script and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    script: Vec<OsString>,
}

/// Says who can.
pub(crate) fn run(_arguments: &Arguments, printer: &mut Printer) -> Outcome {
    let hint = "install the Python package into the training's environment; its `trainmon run` and `python -m trainmon run` can";
    printer.error("this program has no Python: it cannot run a training script", "", Some(hint));
    Outcome::Failed
}
