//! A log, as it was read.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use trainmon_report::{first_of, quoted};

use crate::format::LogFormat;

/// A log of another tool, by step.
#[derive(Clone, Debug)]
pub struct Log {
    /// The path as it was given.
    pub path: PathBuf,
    /// The file that was read, or the directory whose files were.
    pub source: PathBuf,
    /// What a run of it is called.
    pub name: String,
    /// Who wrote it.
    pub format: LogFormat,
    /// Bytes read.
    pub bytes: u64,
    /// Which column was taken for what.
    pub columns: LogColumns,
    /// The names of the other columns, by the numbers in [`LogStep::others`].
    pub names: Vec<String>,
    /// The steps, in order; each once.
    pub steps: Vec<LogStep>,
    /// What was guessed, and what is worth knowing, a sentence each.
    pub remarks: Vec<String>,
    /// What is not as it should be, or was not read, a sentence each.
    pub warnings: Vec<String>,
}

/// Which column was taken for what.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LogColumns {
    /// The step; `None` where rows are counted.
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
    /// Its name in the log.
    pub name: String,
    /// Whether the name was guessed; otherwise it was given, or is part of the format.
    pub is_guessed: bool,
    /// How many numbers it has.
    pub values: u64,
}

/// What a log has of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogStep {
    /// The step.
    pub step: u64,
    /// When it was logged, since 1970.
    pub time: Option<Duration>,
    /// The loss.
    pub loss: Option<f64>,
    /// The global gradient norm.
    pub grad_norm: Option<f64>,
    /// The learning rate.
    pub learning_rate: Option<f64>,
    /// Other numbers: which of [`Log::names`], and the value.
    pub others: Vec<(u32, f64)>,
}

/// Names that a sentence lists.
const SHOWN: usize = 8;

impl Log {
    /// What was read, in words: a line on the whole, one on each column that means something, and the remarks.
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
