//! A log, as it was read.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use trainmon_report::{first_of, quoted};

use crate::format::LogFormat;

/// A log of another tool, by step.
#[derive(Clone, Debug)]
pub struct Log {
    /// The path that was passed.
    pub path: PathBuf,
    /// The file or directory that was read.
    pub source: PathBuf,
    /// The run's name.
    pub name: String,
    /// The format.
    pub format: LogFormat,
    /// Bytes read.
    pub bytes: u64,
    /// The columns and their roles.
    pub columns: LogColumns,
    /// The names of the other columns, indexed by [`LogStep::others`].
    pub names: Vec<String>,
    /// The steps in order, each once.
    pub steps: Vec<LogStep>,
    /// Guesses and other remarks, one sentence each.
    pub remarks: Vec<String>,
    /// Problems and ignored content, one sentence each.
    pub warnings: Vec<String>,
}

/// The column of each role.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LogColumns {
    /// The step; `None` if rows are counted.
    pub step: Option<PickedColumn>,
    /// The loss.
    pub loss: Option<PickedColumn>,
    /// The global gradient norm.
    pub grad_norm: Option<PickedColumn>,
    /// The learning rate.
    pub learning_rate: Option<PickedColumn>,
}

/// A column and how it was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PickedColumn {
    /// The column's name in the log.
    pub name: String,
    /// Whether the name was guessed; otherwise the user named it or the format defines it.
    pub is_guessed: bool,
    /// The number of values.
    pub values: u64,
}

/// The numbers of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogStep {
    /// The step.
    pub step: u64,
    /// The time at which it was logged, since 1970.
    pub time: Option<Duration>,
    /// The loss.
    pub loss: Option<f64>,
    /// The global gradient norm.
    pub grad_norm: Option<f64>,
    /// The learning rate.
    pub learning_rate: Option<f64>,
    /// Other numbers: the index in [`Log::names`], and the value.
    pub others: Vec<(u32, f64)>,
}

/// The number of names listed in a sentence.
const SHOWN: usize = 8;

impl Log {
    /// A description of the log: a line about the whole, one per column with a role, and the remarks.
    pub fn in_words(&self) -> String {
        let Self { source, format, columns, names, steps, remarks, .. } = self;
        let range = match &steps[..] {
            [] => String::new(),
            [one] => format!(", {}", one.step),
            [first, .., last] => format!(", {} to {}", first.step, last.step),
        };
        let plural = if steps.len() == 1 { "step" } else { "steps" };
        let LogColumns { step, loss, grad_norm, learning_rate } = columns;
        let none = |option: &str| format!("no column found (name one with {option})");
        let rows = format!("the number of the {}, from 1 (name a column with --step)", format.row());
        let mut lines = vec![format!("read {} {plural} of `{}` ({format}){range}", steps.len(), source.display())];
        for (what, column, option, absent) in [
            ("loss", loss, "--loss", none("--loss")),
            ("gradient norm", grad_norm, "--grad-norm", none("--grad-norm")),
            ("learning rate", learning_rate, "--lr", none("--lr")),
            ("step", step, "--step", rows),
        ] {
            let taken = match column {
                Some(PickedColumn { name, is_guessed: true, .. }) => {
                    format!("`{name}` (guessed; override with {option})")
                }
                Some(PickedColumn { name, .. }) => quoted(name),
                None => absent,
            };
            lines.push(format!("  {what}: {taken}"));
        }
        if !names.is_empty() {
            lines.push(format!("  other numbers: {}", first_of(names.iter().map(quoted), SHOWN)));
        }
        lines.extend(remarks.iter().map(|remark| format!("  {remark}")));
        lines.join("\n") + "\n"
    }
}
