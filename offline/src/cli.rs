//! The command line: arguments, verbs, exit codes.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use serde_json::json;

use crate::anomaly;
use crate::check_config::{self, Finding, Report, Unreadable};
use crate::checkpoint;
use crate::compare;
use crate::compare_runs;
use crate::convert;
use crate::ctl;
use crate::excerpt::excerpt;
use crate::merge;
use crate::overflow;
use crate::printer::Printer;
use crate::recover::{self, verb::Outcome};
use crate::tensors;

/// All is well.
const EXIT_OK: u8 = 0;
/// Something differs, is torn or is alerted of.
const EXIT_DIFFERENCE: u8 = 1;
/// Something is wrong with the arguments, the input or the machine.
const EXIT_ERROR: u8 = 2;

/// Watch, capture and explain trainings.
#[derive(Parser)]
#[command(name = "trainmon", version, arg_required_else_help = true, after_help = EXIT_CODES)]
#[command(after_long_help = concat!(
    "Examples:\n",
    "  trainmon check-config configs/demo.json     what this config measures, or what is wrong with it\n",
    "  trainmon compare dump_b dump_a               where two captured runs first part\n",
    "  trainmon anomaly -d monitor_output           what of all ranks' alerts came first\n",
    "  trainmon compare-checkpoint run_tp1 run_tp2pp2  two checkpoints, tensor by tensor\n",
    "  trainmon compare-runs new/monitor_output old/monitor_output  where two runs part first, beyond noise\n",
    "  trainmon convert --to tensorboard monitor_output -o events\n",
    "  trainmon recover monitor_output -o rescued  the last steps of a run that crashed\n",
    "  trainmon ctl monitor_output set --every 10   a training that runs: measure one step in ten from now on\n",
    "  trainmon config-schema > trainmon.schema.json\n",
    "  trainmon completions bash > ~/.local/share/bash-completion/completions/trainmon\n",
    "\n",
    "Exit codes: 0 fine, 1 a difference or an alert, 2 an error"
))]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 fine, 1 a difference or an alert, 2 an error";

#[derive(Subcommand)]
enum Verb {
    /// Check a config file and show what it means
    ///
    /// Prints the effective config, defaults filled in, as JSON. Errors and warnings go to stderr, all at once, each
    /// with its line, column and key.
    #[command(after_long_help = concat!(
        "Examples:\n",
        "  trainmon check-config train.json\n",
        "  trainmon check-config train.json | jq .window\n",
        "  trainmon check-config train.json --json | jq '.errors[].message'"
    ))]
    CheckConfig {
        /// The config file: JSON, comments and trailing commas allowed
        file: PathBuf,
        /// Print one JSON object with the errors, the warnings and the config, also on failure
        #[arg(long)]
        json: bool,
    },
    /// Of all ranks' findings in anomaly.json, show those that came first
    ///
    /// Alerts write every finding there with `"alert": {"dump": true}`. What came first is where to look.
    #[command(after_long_help = anomaly::verb::EXAMPLES)]
    Anomaly(anomaly::verb::Arguments),
    /// Compare two captures, monitored runs or checkpoints: where did they first part, and is it real?
    ///
    /// Looks for the first operator whose inputs agree and whose outputs do not, in the order of execution, across ranks by
    /// their communication, across steps. What counts as rounding depends on dtype, operator and inputs.
    #[command(after_long_help = compare::verb::EXAMPLES)]
    Compare(Box<compare::verb::Arguments>),
    /// Find where NaN and infinities were born: the first operator that gives some out without having been given any
    ///
    /// Across ranks, what came in by communication is followed to where it was sent. An infinity that an operator was given as
    /// an argument (a mask) does not count, unless NaN comes of it.
    #[command(visible_alias = "overflow_check", after_long_help = overflow::verb::EXAMPLES)]
    Overflow(overflow::verb::Arguments),
    /// Find where two monitored runs part first, beyond noise
    ///
    /// Pairs ranks, steps and series, and names the first step and tensor where the target is further from the golden run
    /// than printed digits, round-off and the growth of noise explain. `trainmon compare` does this for monitored runs.
    #[command(after_long_help = compare_runs::verb::EXAMPLES)]
    CompareRuns(compare_runs::verb::Arguments),
    /// Convert a run's CSV files to TensorBoard's event files, or files of tensors to another format
    ///
    /// Every value of the files becomes a point with the step and, where the run has a steps.csv, the time of its own.
    /// Tags are those of msprobe's conversion: `vp0:blocks.0.attn.qkv.weight/norm`, one TensorBoard run per kind and rank.
    #[command(after_long_help = convert::verb::EXAMPLES)]
    Convert(convert::verb::Arguments),
    /// Compare two checkpoints tensor by tensor, whatever their layouts
    ///
    /// Megatron's, DeepSpeed's and FSDP's shards are put together without those libraries, and without executing anything
    /// that is in the files.
    #[command(after_long_help = checkpoint::verb::EXAMPLES)]
    CompareCheckpoint(checkpoint::verb::Arguments),
    /// Merge the tables `trainmon compare` wrote of several ranks: a column per rank
    #[command(visible_alias = "merge_result", after_long_help = merge::verb::EXAMPLES)]
    Merge(merge::verb::Arguments),
    /// Write files of tensors in another format: npy, pt, safetensors
    #[command(after_long_help = tensors::verb::EXAMPLES)]
    Parse(tensors::verb::Arguments),
    /// Write the CSV files of a run that crashed, out of the journal it left
    ///
    /// Every step the journal holds is checked and written the way the run's own files are. Records that are torn (by a
    /// loss of power, a damaged disk) are left out and told, one by one.
    #[command(after_long_help = recover::verb::EXAMPLES)]
    Recover(recover::verb::Arguments),
    /// Speak to a training that is being watched: status, pause, resume, flush, set
    ///
    /// The config needs `"control": {}`. The run is found by its directory; the socket in it is its owner's alone.
    #[command(after_long_help = ctl::verb::EXAMPLES)]
    Ctl(Box<ctl::verb::Arguments>),
    /// Print the JSON Schema of config files, for editors
    #[command(after_long_help = concat!(
        "Example:\n",
        "  trainmon config-schema > trainmon.schema.json\n",
        "Then begin the config with { \"$schema\": \"./trainmon.schema.json\", and the editor completes and explains keys."
    ))]
    ConfigSchema,
    /// Print the completion script of a shell
    #[command(after_long_help = concat!(
        "Examples:\n",
        "  trainmon completions bash > ~/.local/share/bash-completion/completions/trainmon\n",
        "  trainmon completions zsh > ~/.zfunc/_trainmon\n",
        "  trainmon completions fish > ~/.config/fish/completions/trainmon.fish"
    ))]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// The `trainmon` command: 0 fine, 1 a difference or an alert, 2 an error.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut printer = Printer::new();
    let code = match Cli::try_parse_from(respelt(arguments)) {
        Ok(cli) => dispatch(cli.verb, &mut printer),
        Err(message) => explain_usage(&message, &mut printer),
    };
    ExitCode::from(code.unwrap_or_else(|error| {
        printer.failure(&OutputFailure { source: error }, None);
        EXIT_ERROR
    }))
}

/// msprobe's options of one dash and several letters, where the verb has them, as long options.
fn respelt(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let spellings: &[(&str, &str)] = match arguments.get(1).and_then(|verb| verb.to_str()) {
        Some("compare") => &compare::verb::SPELLINGS,
        Some("merge" | "merge_result") => &merge::verb::SPELLINGS,
        _ => return arguments,
    };
    for argument in &mut arguments[2..] {
        if let Some(long) = argument.to_str().and_then(|argument| respelt_option(argument, spellings)) {
            *argument = OsString::from(long);
        }
    }
    arguments
}

/// An option as it is called here: `-tp` and `-tp=…` by the list, `--output_path` with hyphens.
fn respelt_option(argument: &str, spellings: &[(&str, &str)]) -> Option<String> {
    let (name, value) = argument.split_once('=').map_or((argument, None), |(name, value)| (name, Some(value)));
    let long = match spellings.iter().find(|(short, _)| name == *short) {
        Some((_, long)) => (*long).to_owned(),
        None if name.starts_with("--") && name.contains('_') => name.replace('_', "-"),
        None => return None,
    };
    Some(value.map_or_else(|| long.clone(), |value| format!("{long}={value}")))
}

/// The output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the output")]
struct OutputFailure {
    source: io::Error,
}

/// Help and version go to stdout, usage errors to stderr.
fn explain_usage(message: &clap::Error, printer: &mut Printer) -> io::Result<u8> {
    let text = message.render().ansi().to_string();
    if message.use_stderr() {
        printer.note(&text);
        return Ok(EXIT_ERROR);
    }
    printer.result(&text)?;
    Ok(EXIT_OK)
}

fn dispatch(verb: Verb, printer: &mut Printer) -> io::Result<u8> {
    match verb {
        Verb::CheckConfig { file, json } => {
            let checked = check_config::check(&file);
            if json { print_report_as_json(&file, &checked, printer) } else { print_report(&checked, printer) }
        }
        Verb::Anomaly(arguments) => Ok(match anomaly::verb::run(&arguments, printer)? {
            anomaly::verb::Outcome::Well => EXIT_OK,
            anomaly::verb::Outcome::Findings => EXIT_DIFFERENCE,
            anomaly::verb::Outcome::Failed => EXIT_ERROR,
        }),
        Verb::Compare(arguments) => Ok(match compare::verb::run(&arguments, printer)? {
            compare::verb::Outcome::Same => EXIT_OK,
            compare::verb::Outcome::Parts => EXIT_DIFFERENCE,
            compare::verb::Outcome::Failed => EXIT_ERROR,
        }),
        Verb::CompareRuns(arguments) => Ok(match compare_runs::verb::run(&arguments, printer)? {
            compare_runs::verb::Outcome::Well => EXIT_OK,
            compare_runs::verb::Outcome::Differs => EXIT_DIFFERENCE,
            compare_runs::verb::Outcome::Failed => EXIT_ERROR,
        }),
        Verb::Convert(arguments) => Ok(if convert::verb::run(&arguments, printer)? { EXIT_OK } else { EXIT_ERROR }),
        Verb::Overflow(arguments) => Ok(match overflow::verb::run(&arguments, printer)? {
            overflow::verb::Outcome::Clean => EXIT_OK,
            overflow::verb::Outcome::Found => EXIT_DIFFERENCE,
            overflow::verb::Outcome::Failed => EXIT_ERROR,
        }),
        Verb::CompareCheckpoint(arguments) => Ok(match checkpoint::verb::run(&arguments, printer)? {
            checkpoint::verb::Outcome::Same => EXIT_OK,
            checkpoint::verb::Outcome::Different => EXIT_DIFFERENCE,
            checkpoint::verb::Outcome::Failed => EXIT_ERROR,
        }),
        Verb::Merge(arguments) => Ok(if merge::verb::run(&arguments, printer)? { EXIT_OK } else { EXIT_ERROR }),
        Verb::Parse(arguments) => Ok(if tensors::verb::run(&arguments, printer)? { EXIT_OK } else { EXIT_ERROR }),
        Verb::Recover(arguments) => Ok(match recover::verb::run(&arguments, printer)? {
            Outcome::Whole => EXIT_OK,
            Outcome::Torn => EXIT_DIFFERENCE,
            Outcome::Failed => EXIT_ERROR,
        }),
        Verb::Ctl(arguments) => Ok(match ctl::verb::run(&arguments, printer)? {
            ctl::verb::Outcome::Done => EXIT_OK,
            ctl::verb::Outcome::Late => EXIT_DIFFERENCE,
            ctl::verb::Outcome::Failed => EXIT_ERROR,
        }),
        Verb::ConfigSchema => {
            printer.json(&trainmon_core::config::json_schema())?;
            Ok(EXIT_OK)
        }
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "trainmon", &mut script);
            printer.result(&String::from_utf8_lossy(&script))?;
            Ok(EXIT_OK)
        }
    }
}

fn print_report(checked: &Result<Report, Unreadable>, printer: &mut Printer) -> io::Result<u8> {
    let report = match checked {
        Ok(report) => report,
        Err(unreadable) => {
            printer.failure(unreadable, Some(unreadable.hint()));
            return Ok(EXIT_ERROR);
        }
    };
    let below = |finding: &Finding| {
        let diagnostic = &finding.diagnostic;
        // A line of this object may hold a key to a receiver: it is not shown.
        let is_secret = diagnostic.key.starts_with("otlp");
        if is_secret { String::new() } else { excerpt(&report.text, diagnostic.line, diagnostic.column) }
    };
    for warning in &report.warnings {
        printer.warning(&warning.message, &below(warning), warning.diagnostic.hint.as_deref());
    }
    for error in &report.errors {
        printer.error(&error.message, &below(error), error.diagnostic.hint.as_deref());
    }
    if let Some(config) = &report.config {
        printer.json(config)?;
        return Ok(EXIT_OK);
    }
    let count = report.errors.len();
    printer.note(&format!("{}: {count} error{}\n", report.file, if count == 1 { "" } else { "s" }));
    Ok(EXIT_ERROR)
}

fn print_report_as_json(file: &Path, checked: &Result<Report, Unreadable>, printer: &mut Printer) -> io::Result<u8> {
    let is_ok = match checked {
        Ok(report) => {
            printer.json(report)?;
            report.ok
        }
        Err(unreadable) => {
            let (message, cause) = (unreadable.to_string(), unreadable.source.to_string());
            let error = json!({
                "message": format!("{message}: {cause}"), "file": file.display().to_string(), "line": null,
                "column": null, "key": "", "kind": "unreadable", "expected": null, "found": cause,
                "suggestion": null, "hint": unreadable.hint(),
            });
            let file = file.display().to_string();
            let report = json!({"file": file, "ok": false, "errors": [error], "warnings": [], "config": null});
            printer.json(&report)?;
            false
        }
    };
    Ok(if is_ok { EXIT_OK } else { EXIT_ERROR })
}
