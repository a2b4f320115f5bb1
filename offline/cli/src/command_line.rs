//! The command line: arguments, verbs, exit codes.

use std::ffi::OsString;
use std::io;

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use trainmon_report::{Outcome, Printer};

use crate::verbs::{
    alerts, anomaly, check_config, checkpoint, compare, compare_runs, convert, ctl, graph, merge, merge_ranks,
    overflow, parse, plot, recover, replay, report, run as run_script, top,
};

/// Monitor training runs, capture their tensors and find where two of them diverge
#[derive(Parser)]
#[command(name = "trainmon", version, arg_required_else_help = true, after_help = EXIT_CODES)]
#[command(after_long_help = concat!(
    "Examples:\n",
    "  trainmon run train.py               watch a training script without editing it\n",
    "  trainmon top monitor_output         follow the newest run in the terminal\n",
    "  trainmon plot monitor_output        draw it as one HTML page\n",
    "  trainmon alerts trainer_state.json  run the alert rules over the log of any training\n",
    "  trainmon compare new_run old_run    find the first step, rank and tensor that diverge\n",
    "  trainmon compare dump_b dump_a      find the first operator that diverges\n",
    "  trainmon ctl monitor_output status  show the state of a running training\n",
    "\n",
    "Run `trainmon help COMMAND` for the examples of a command.\n",
    "Exit codes: 0 fine, 1 a difference or an alert, 2 an error"
))]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 fine, 1 a difference or an alert, 2 an error";

/// The commands as `--help` lists them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Watch a training", &["run", "ctl", "check-config"]),
    ("Look at a run", &["top", "plot", "report", "alerts", "anomaly", "replay"]),
    ("Compare", &["compare", "compare-runs", "compare-checkpoint", "overflow", "graph", "merge"]),
    ("Convert and recover data", &["convert", "parse", "merge-ranks", "recover"]),
    ("Set up", &["config-schema", "completions", "help"]),
];

/// The command line, its commands listed by what they are for.
fn command() -> Command {
    let mut command = Cli::command();
    command.build();
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let line = |name: &str| {
        let about = command.find_subcommand(name)?.get_about()?;
        Some(format!("  {literal}{name:<18}{literal:#}  {about}\n"))
    };
    let group = |(title, names): &(&str, &[&str])| {
        let lines: String = names.iter().filter_map(|name| line(name)).collect();
        format!("{header}{title}:{header:#}\n{lines}\n")
    };
    let listed: String = GROUPS.iter().map(group).collect();
    let options = "{about-with-newline}\n{usage-heading} {usage}\n\n";
    command.help_template(format!("{options}{listed}{header}Options:{header:#}\n{{options}}{{after-help}}"))
}

#[derive(Subcommand)]
enum Verb {
    /// Watch a training script without editing it (requires the Python package)
    ///
    /// The script runs as it does without trainmon: same arguments, exit status and tracebacks.
    #[command(after_long_help = run_script::EXAMPLES)]
    Run(run_script::Arguments),
    /// Check a config file and show what it changes
    ///
    /// Prints the keys whose values differ from the defaults, as JSON; `--full` prints every key. Errors and warnings go to stderr,
    /// all at once, each with its line, column and key.
    #[command(after_long_help = check_config::EXAMPLES)]
    CheckConfig(check_config::Arguments),
    /// Run the alert rules over a recorded run or the log of another tool
    ///
    /// Applies the rules that trainmon applies during a training. Reads runs of trainmon and msprobe, CSV, JSON Lines,
    /// `trainer_state.json`, TensorBoard events, offline files of wandb and MLflow, and Megatron-LM's text log.
    #[command(after_long_help = alerts::EXAMPLES)]
    Alerts(alerts::Arguments),
    /// Show which rank's alert came first
    ///
    /// Reads the `anomaly.json` of every rank. trainmon writes it with `"alert": {"dump": true}`.
    #[command(after_long_help = anomaly::EXAMPLES)]
    Anomaly(anomaly::Arguments),
    /// Find where two runs, captures or checkpoints first diverge
    ///
    /// In captures, reports the first operator whose inputs agree and whose outputs differ by more than rounding error. Follows
    /// the order of execution, communication between ranks, and steps. The tolerance depends on dtype, operator and inputs.
    #[command(after_long_help = compare::EXAMPLES)]
    Compare(Box<compare::Arguments>),
    /// Find the operator that first produced NaN or infinity
    ///
    /// Follows NaN and infinities that arrived by communication to the rank that sent them. An infinite argument, such as a mask,
    /// does not count unless it turns into NaN.
    #[command(visible_alias = "overflow_check", after_long_help = overflow::EXAMPLES)]
    Overflow(overflow::Arguments),
    /// Write the graph of one capture or of two as a database for TensorBoard
    ///
    /// The file has msprobe's format. Modules and operators are nodes with their values and stacks; with a baseline, also with their
    /// counterparts, differences and results, which are msprobe's. Reads one rank at a time.
    #[command(visible_alias = "graph_visualize", after_long_help = graph::EXAMPLES)]
    Graph(graph::Arguments),
    /// Find where two monitored runs first diverge beyond noise
    ///
    /// Pairs ranks, steps and series. Names the first step and tensor whose difference exceeds printed digits, rounding error and
    /// the growth of noise. `trainmon compare` does the same when you pass it runs.
    #[command(after_long_help = compare_runs::EXAMPLES)]
    CompareRuns(compare_runs::Arguments),
    /// Convert a run to TensorBoard event files, or tensors to another format
    ///
    /// Every value becomes a point with its step, and with its time if the run has a `steps.csv`. Tags are those of msprobe's
    /// conversion: `vp0:blocks.0.attn.qkv.weight/norm`. Each kind and rank is a TensorBoard run.
    #[command(after_long_help = convert::EXAMPLES)]
    Convert(convert::Arguments),
    /// Compare two checkpoints tensor by tensor, across layouts
    ///
    /// Joins the shards of Megatron, DeepSpeed and FSDP without those libraries, and executes nothing from the files.
    #[command(after_long_help = checkpoint::EXAMPLES)]
    CompareCheckpoint(checkpoint::Arguments),
    /// Merge the tables that `trainmon compare` wrote per rank
    #[command(visible_alias = "merge_result", after_long_help = merge::EXAMPLES)]
    Merge(merge::Arguments),
    /// Join the rows of all ranks into those of one unsharded model
    ///
    /// Makes runs of different parallel layouts comparable. Requires the `layout.json` that each rank writes.
    #[command(after_long_help = merge_ranks::EXAMPLES)]
    MergeRanks(merge_ranks::Arguments),
    /// Convert tensor files to npy, pt or safetensors
    #[command(after_long_help = parse::EXAMPLES)]
    Parse(parse::Arguments),
    /// Restore the last steps of a crashed run from its journal
    ///
    /// Checks every step in the journal and writes it as the run's own CSV files would have it. Reports each record that is damaged,
    /// for example by a power loss, and leaves it out.
    #[command(after_long_help = recover::EXAMPLES)]
    Recover(recover::Arguments),
    /// Draw a run as one HTML page, or as a picture of its curves
    ///
    /// Reads CSV files (of trainmon or msprobe) or a journal. The run may still be training.
    #[command(after_long_help = plot::EXAMPLES)]
    Plot(plot::Arguments),
    /// Summarize what moved in a run: step, layer, rank and confidence
    ///
    /// Writes at most 256 KB, for a ticket, a chat or a language model. Lists what was not measured and what would settle the
    /// open questions.
    #[command(after_long_help = report::EXAMPLES)]
    Report(report::Arguments),
    /// Follow a run in the terminal: curves, worst layers, alerts, counters
    ///
    /// Pass the address of its page while it trains, or its directory at any time.
    #[command(after_long_help = top::EXAMPLES)]
    Top(top::Arguments),
    /// Send a recorded run to Prometheus or OpenTelemetry with its own times
    ///
    /// Reads CSV files (of trainmon or msprobe) or a journal. Old runs then appear in Grafana next to current ones.
    #[command(after_long_help = replay::EXAMPLES)]
    Replay(Box<replay::Arguments>),
    /// Control a running training: status, pause, resume, flush, set, dump
    ///
    /// Requires `"control": {}` in the config. Finds the run by its directory; only its owner may open the socket there.
    #[command(after_long_help = ctl::EXAMPLES)]
    Ctl(Box<ctl::Arguments>),
    /// Print the JSON Schema of config files, for editors
    #[command(after_long_help = concat!(
        "Example:\n",
        "  trainmon config-schema > trainmon.schema.json\n",
        "Then begin your config with { \"$schema\": \"./trainmon.schema.json\", and your editor completes and explains its keys."
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
    let parsed = command().try_get_matches_from(respelt(arguments));
    let outcome = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
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
        Some("graph" | "graph_visualize") => &graph::SPELLINGS,
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

/// Returns the long option with hyphens for `-tp`, `-tp=…` (by the list) or `--output_path`; `None` for other arguments.
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
        Verb::Graph(arguments) => graph::run(&arguments, printer),
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
