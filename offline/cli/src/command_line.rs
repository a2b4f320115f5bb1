//! The command line: arguments, verbs, exit codes.

use std::ffi::OsString;
use std::io;

use clap::{CommandFactory, Parser, Subcommand};
use trainmon_report::{Outcome, Printer};

use crate::verbs::{
    alerts, anomaly, check_config, checkpoint, compare, compare_runs, convert, ctl, merge, merge_ranks, overflow,
    parse, plot, recover, replay, report, run as run_script, top,
};

/// Watch, capture and explain trainings.
#[derive(Parser)]
#[command(name = "trainmon", version, arg_required_else_help = true, after_help = EXIT_CODES)]
#[command(after_long_help = concat!(
    "Examples:\n",
    "  trainmon run --config monitor.json train.py  a training, watched without a line changed in it\n",
    "  trainmon check-config configs/demo.json     what this config measures, or what is wrong with it\n",
    "  trainmon compare dump_b dump_a               where two captured runs first part\n",
    "  trainmon alerts trainer_state.json           what the alert rules find in a log of any training\n",
    "  trainmon anomaly -d monitor_output           what of all ranks' alerts came first\n",
    "  trainmon compare-checkpoint run_tp1 run_tp2pp2  two checkpoints, tensor by tensor\n",
    "  trainmon compare-runs new/monitor_output old/monitor_output  where two runs part first, beyond noise\n",
    "  trainmon convert --to tensorboard monitor_output -o events\n",
    "  trainmon merge-ranks monitor_output -o whole  shards and slices of all ranks as one model's rows\n",
    "  trainmon recover monitor_output -o rescued  the last steps of a run that crashed\n",
    "  trainmon plot monitor_output                curves, heat maps and alerts of the newest run, in one page\n",
    "  trainmon top http://127.0.0.1:9464          a training that runs, in the terminal\n",
    "  trainmon report monitor_output              what moved, since which step, in which layer and rank, how sure\n",
    "  trainmon replay monitor_output --to prometheus --blocks  an old run into Prometheus, every step with its own time\n",
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
    /// Watch a training script without a line changed in it (needs the Python package)
    ///
    /// The script runs as without trainmon: its arguments, its exit status, its tracebacks.
    #[command(after_long_help = run_script::EXAMPLES)]
    Run(run_script::Arguments),
    /// Check a config file and show what it means
    ///
    /// Prints as JSON what the effective config has that differs from the defaults; with `--full` all of it. Errors and warnings go to stderr, all at once, each
    /// with its line, column and key.
    #[command(after_long_help = check_config::EXAMPLES)]
    CheckConfig(check_config::Arguments),
    /// Run the alert rules over a recorded run, or over the log of another tool
    ///
    /// The rules of a training, with the sentences they would have said. Reads runs of trainmon and msprobe, CSV, JSON Lines,
    /// `trainer_state.json`, TensorBoard events, the offline files of wandb and MLflow, and Megatron-LM's text log.
    #[command(after_long_help = alerts::EXAMPLES)]
    Alerts(alerts::Arguments),
    /// Of all ranks' findings in anomaly.json, show those that came first
    ///
    /// Alerts write every finding there with `"alert": {"dump": true}`. What came first is where to look.
    #[command(after_long_help = anomaly::EXAMPLES)]
    Anomaly(anomaly::Arguments),
    /// Compare two captures, monitored runs or checkpoints: where did they first part, and is it real?
    ///
    /// Looks for the first operator whose inputs agree and whose outputs do not, in the order of execution, across ranks by
    /// their communication, across steps. What counts as rounding depends on dtype, operator and inputs.
    #[command(after_long_help = compare::EXAMPLES)]
    Compare(Box<compare::Arguments>),
    /// Find where NaN and infinities were born: the first operator that gives some out without having been given any
    ///
    /// Across ranks, what came in by communication is followed to where it was sent. An infinity that an operator was given as
    /// an argument (a mask) does not count, unless NaN comes of it.
    #[command(visible_alias = "overflow_check", after_long_help = overflow::EXAMPLES)]
    Overflow(overflow::Arguments),
    /// Find where two monitored runs part first, beyond noise
    ///
    /// Pairs ranks, steps and series, and names the first step and tensor where the target is further from the golden run
    /// than printed digits, round-off and the growth of noise explain. `trainmon compare` does this for monitored runs.
    #[command(after_long_help = compare_runs::EXAMPLES)]
    CompareRuns(compare_runs::Arguments),
    /// Convert a run's CSV files to TensorBoard's event files, or files of tensors to another format
    ///
    /// Every value of the files becomes a point with the step and, where the run has a steps.csv, the time of its own.
    /// Tags are those of msprobe's conversion: `vp0:blocks.0.attn.qkv.weight/norm`, one TensorBoard run per kind and rank.
    #[command(after_long_help = convert::EXAMPLES)]
    Convert(convert::Arguments),
    /// Compare two checkpoints tensor by tensor, whatever their layouts
    ///
    /// Megatron's, DeepSpeed's and FSDP's shards are put together without those libraries, and without executing anything
    /// that is in the files.
    #[command(after_long_help = checkpoint::EXAMPLES)]
    CompareCheckpoint(checkpoint::Arguments),
    /// Merge the tables `trainmon compare` wrote of several ranks: a column per rank
    #[command(visible_alias = "merge_result", after_long_help = merge::EXAMPLES)]
    Merge(merge::Arguments),
    /// Put the rows of a run's ranks together: one row per parameter and step, as of a model on one rank
    ///
    /// So runs of different parallel layouts can be read and compared. Ranks write layout.json for it.
    #[command(after_long_help = merge_ranks::EXAMPLES)]
    MergeRanks(merge_ranks::Arguments),
    /// Write files of tensors in another format: npy, pt, safetensors
    #[command(after_long_help = parse::EXAMPLES)]
    Parse(parse::Arguments),
    /// Write the CSV files of a run that crashed, out of the journal it left
    ///
    /// Every step the journal holds is checked and written the way the run's own files are. Records that are torn (by a
    /// loss of power, a damaged disk) are left out and told, one by one.
    #[command(after_long_help = recover::EXAMPLES)]
    Recover(recover::Arguments),
    /// Draw a run: one page that needs nothing else, or a picture of its curves
    ///
    /// Of a finished run or of one that is at work, from its CSV files (ours or msprobe's) or its journal.
    #[command(after_long_help = plot::EXAMPLES)]
    Plot(plot::Arguments),
    /// Tell what a run shows, as evidence of at most 256 KB: what moved, since which step, where, how sure
    ///
    /// For a ticket, a chat or a language model: it says what was not measured, and what would settle what is open.
    #[command(after_long_help = report::EXAMPLES)]
    Report(report::Arguments),
    /// Watch a run in the terminal: curves, the worst layers, alerts, the books
    ///
    /// By the address of its page while it runs, or by its directory, running or finished.
    #[command(after_long_help = top::EXAMPLES)]
    Top(top::Arguments),
    /// Send a recorded run to Prometheus or over OpenTelemetry, every step with its own time
    ///
    /// Of CSV files, ours or msprobe's, or of a journal: so old runs appear in Grafana beside those that run.
    #[command(after_long_help = replay::EXAMPLES)]
    Replay(Box<replay::Arguments>),
    /// Speak to a training that is being watched: status, pause, resume, flush, set
    ///
    /// The config needs `"control": {}`. The run is found by its directory; the socket in it is its owner's alone.
    #[command(after_long_help = ctl::EXAMPLES)]
    Ctl(Box<ctl::Arguments>),
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

/// Runs a command line and returns its exit status: 0 fine, 1 a difference or an alert, 2 an error.
///
/// The first argument is the program's name, as usage and help show it. Results go to stdout, everything else to stderr; a
/// reader of stdout that went away is no error where SIGPIPE is ignored, as Rust's and Python's programs have it. Nothing
/// here ends the process or changes how it takes signals.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let mut printer = Printer::new();
    let outcome = match Cli::try_parse_from(respelt(arguments)) {
        Ok(cli) => dispatch(cli.verb, &mut printer),
        Err(message) => explain_usage(&message, &mut printer),
    };
    let outcome = outcome.unwrap_or_else(|error| {
        printer.failure(&OutputFailure { source: error }, None);
        Outcome::Failed
    });
    outcome.exit_code()
}

/// msprobe's options of one dash and several letters, where the verb has them, as long options.
fn respelt(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let spellings: &[(&str, &str)] = match arguments.get(1).and_then(|verb| verb.to_str()) {
        Some("compare") => &compare::SPELLINGS,
        Some("merge" | "merge_result") => &merge::SPELLINGS,
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
fn explain_usage(message: &clap::Error, printer: &mut Printer) -> io::Result<Outcome> {
    let text = message.render().ansi().to_string();
    if message.use_stderr() {
        printer.note(&text);
        return Ok(Outcome::Failed);
    }
    printer.result(&text)?;
    Ok(Outcome::Fine)
}

fn dispatch(verb: Verb, printer: &mut Printer) -> io::Result<Outcome> {
    match verb {
        Verb::Run(arguments) => Ok(run_script::run(&arguments, printer)),
        Verb::CheckConfig(arguments) => check_config::run(&arguments, printer),
        Verb::Alerts(arguments) => alerts::run(&arguments, printer),
        Verb::Anomaly(arguments) => anomaly::run(&arguments, printer),
        Verb::Compare(arguments) => compare::run(&arguments, printer),
        Verb::CompareRuns(arguments) => compare_runs::run(&arguments, printer),
        Verb::Convert(arguments) => convert::run(&arguments, printer),
        Verb::Overflow(arguments) => overflow::run(&arguments, printer),
        Verb::CompareCheckpoint(arguments) => checkpoint::run(&arguments, printer),
        Verb::Merge(arguments) => merge::run(&arguments, printer),
        Verb::MergeRanks(arguments) => merge_ranks::run(&arguments, printer),
        Verb::Parse(arguments) => parse::run(&arguments, printer),
        Verb::Recover(arguments) => recover::run(&arguments, printer),
        Verb::Plot(arguments) => plot::run(&arguments, printer),
        Verb::Report(arguments) => report::run(&arguments, printer),
        Verb::Top(arguments) => top::run(arguments, printer),
        Verb::Replay(arguments) => replay::run(&arguments, printer),
        Verb::Ctl(arguments) => ctl::run(&arguments, printer),
        Verb::ConfigSchema => {
            printer.json(&trainmon_core::config::json_schema())?;
            Ok(Outcome::Fine)
        }
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "trainmon", &mut script);
            printer.result(&String::from_utf8_lossy(&script))?;
            Ok(Outcome::Fine)
        }
    }
}
