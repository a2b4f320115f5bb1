//! The command line of `trainmon alerts` and its output.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::json;
use trainmon_core::config::Alerting;
use trainmon_report::{Advise, Outcome, Printer, shown};
use trainmon_runs::alerts::{JudgeError, JudgeOptions, Judged, as_json, judge};
use trainmon_runs::steps::RankChoice;

use super::log_columns::LogColumnArguments;
use crate::validate_config::{Meant, Unreadable, validate};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon alerts monitor_output                the newest run of trainmon, all ranks\n",
    "  trainmon alerts msprobe_out                   msprobe's CSV files\n",
    "  trainmon alerts output/checkpoint-500         trainer_state.json of Hugging Face's Trainer\n",
    "  trainmon alerts runs/Nov20_16-05-09           TensorBoard's event files\n",
    "  trainmon alerts wandb/latest-run              an offline run of wandb\n",
    "  trainmon alerts mlruns                        the newest run of MLflow\n",
    "  trainmon alerts slurm-1234.out                what Megatron-LM printed\n",
    "  trainmon alerts loss.csv --loss ce --step n   a table whose names cannot be guessed\n",
    "  trainmon alerts loss.csv --config rules.json  other rules, or other thresholds\n",
    "  trainmon alerts metrics.jsonl --json | jq '.alerts[].message'\n",
    "\n",
    "By default, the rules are those of a training without a config. Actions of rules are not ",
    "executed.\n",
    "Exit codes: 0 no alerts, 1 alerts, 2 an error"
);

/// The run and the rules.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run: its directory, one rank's directory, a directory of runs (the newest is used), a journal, or another
    /// tool's log
    run: PathBuf,
    /// Use the rules of this config file [default: those of a training without a config]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Only this rank [default: all]
    #[arg(long, value_name = "R")]
    rank: Option<u32>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    columns: LogColumnArguments,
}

/// Applies the rules and prints the alerts.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { run, config, rank, json, columns } = arguments;
    let alerting = match config.as_deref().map_or_else(|| Ok(Alerting::default()), alerting_of) {
        Ok(alerting) => alerting,
        Err(error) => {
            if *json {
                printer.json(&json!({"ok": false, "error": trainmon_report::as_json(&error)}))?;
            } else {
                printer.failure(&error, Some(error.hint()));
            }
            return Ok(Outcome::Failed);
        }
    };
    let ranks = rank.map_or(RankChoice::All, RankChoice::Only);
    let options = JudgeOptions { ranks, columns: &columns.names(), alerting: &alerting };
    let judged = shown("looking", |progress| judge(run, options, progress));
    if let (Ok(judged), false) = (&judged, json) {
        say_what_was_read(judged, printer);
    }
    printer.answer(&judged, json.then(|| as_json(&judged)), Judged::in_words)?;
    if let (Ok(judged), false) = (&judged, json) {
        printer.note(&judged.sum_in_words());
    }
    Ok(outcome(&judged))
}

fn say_what_was_read(judged: &Judged, printer: &mut Printer) {
    if let Some(newest) = &judged.newest {
        printer.note(&newest.in_words("reading"));
    }
    printer.note(&judged.read_in_words());
    for warning in &judged.warnings {
        printer.warning(warning, "", None);
    }
}

fn outcome(judged: &Result<Judged, JudgeError>) -> Outcome {
    judged.as_ref().map_or(Outcome::Failed, |judged| Outcome::of(judged.begun() > 0))
}

/// Why the rules of a config cannot be used.
#[derive(Debug, thiserror::Error)]
enum ConfigFailure {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("invalid config: {first}{more}")]
    Faults { first: String, more: String },
    #[error("`{file}` is the config of a capture: it has no rules")]
    Capture { file: String },
}

impl Advise for ConfigFailure {
    fn hint(&self) -> &str {
        match self {
            Self::Unreadable(unreadable) => unreadable.hint(),
            Self::Faults { .. } => "to see every error with its line, run `trainmon check-config`",
            Self::Capture { .. } => "pass the config of a monitor, with `alert`",
        }
    }
}

fn alerting_of(path: &Path) -> Result<Alerting, ConfigFailure> {
    let report = validate(path)?;
    match report.config {
        Some(Meant::Monitor(config)) => Ok(config.alert),
        Some(Meant::Capture(_)) => Err(ConfigFailure::Capture { file: report.file }),
        None => {
            let first = report.errors.first().map(|error| error.message.clone()).unwrap_or_default();
            let more = match report.errors.len() {
                0 | 1 => String::new(),
                count => format!(" (and {} more)", count - 1),
            };
            Err(ConfigFailure::Faults { first, more })
        }
    }
}
