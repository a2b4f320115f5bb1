//! The options that name columns of another tool's log.

use clap::Args;
use trainmon_runs::steps::ColumnNames;

/// The columns of another tool's log.
#[derive(Args, Debug)]
#[command(next_help_heading = "Columns of another tool's log")]
pub(crate) struct LogColumnArguments {
    /// The loss [default: guessed `loss`, `train/loss`, `lm loss`, …]
    #[arg(long, value_name = "COLUMN")]
    loss: Option<String>,
    /// The global gradient norm [default: guessed: `grad_norm`, `train/grad_norm`, …]
    #[arg(long, value_name = "COLUMN")]
    grad_norm: Option<String>,
    /// The learning rate [default: guessed: `learning_rate`, `lr`, …]
    #[arg(long, value_name = "COLUMN")]
    lr: Option<String>,
    /// The step; `row` counts the rows [default: guessed: `step`, `global_step`, `iteration`, …]
    #[arg(long, value_name = "COLUMN")]
    step: Option<String>,
}

impl LogColumnArguments {
    /// The column names, for a reader.
    pub(crate) fn names(&self) -> ColumnNames {
        let Self { loss, grad_norm, lr, step } = self;
        ColumnNames { step: step.clone(), loss: loss.clone(), grad_norm: grad_norm.clone(), learning_rate: lr.clone() }
    }
}
