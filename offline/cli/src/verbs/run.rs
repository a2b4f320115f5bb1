//! The command line of `trainmon run`, for its help and for shell completion: the Python package runs the script.

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

/// The script and its monitor.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The config file (JSON)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// The run's name [default: the script's name and the time]
    #[arg(long)]
    name: Option<String>,
    /// Print only warnings, like `TRAINMON_QUIET=1`
    #[arg(long)]
    quiet: bool,
    /// Backward passes per optimizer step [default: detected]
    #[arg(long, value_name = "N")]
    grad_acc_steps: Option<String>,
    /// Override the config's `output_dir`
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output_dir: Option<PathBuf>,
    /// Run a module, like `python -m`
    #[arg(short, value_name = "MODULE")]
    module: Option<String>,
    /// The script and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    script: Vec<OsString>,
}

/// Explains how to run a script with the Python package.
pub(crate) fn run(_arguments: &Arguments, printer: &mut Printer) -> Outcome {
    let hint = "install the Python package into the training's environment and use its `trainmon run` or `python -m trainmon run`";
    printer.error("this program cannot run a training script because it does not include Python", "", Some(hint));
    Outcome::Failed
}
