//! The command line of `trainmon ctl` and its requests.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};
use trainmon_report::{Advise as _, Outcome, Printer};
use trainmon_runs::NewestRun;

use crate::ctl::{ControlError, Endpoint, messages};

/// Examples for `--help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  trainmon ctl status                                     the newest run in ./monitor_output
  trainmon ctl monitor_output/train-1123-043812 pause   
  trainmon ctl run resume --wait                          wait until every rank has switched
  trainmon ctl run set --every 10 --ops norm,max          every tenth step, with these statistics
  trainmon ctl run set --target layers.7 --target head --on moments --off activations
  trainmon ctl run set --collect 20 --from 5000           20 steps, starting at step 5000
  trainmon ctl run dump --steps 2 --level mix --wait      capture two steps, the same on all ranks
  trainmon ctl run dump --at 5000 --task tensor --list layers.7
  trainmon ctl run set --json-change '{\"targets\": [], \"stop_step\": null}'
  trainmon ctl --socket /tmp/trainmon.sock flush          wait until all measured data is on disk
  trainmon ctl --url http://127.0.0.1:9470 --token-file run/control.token status --json | jq .step

A change takes effect at the same step on every rank; the output contains the step.
Exit codes: 0 success, 1 with --wait: a rank switched at another step or its capture is incomplete, 2 an error";

/// The places searched for the newest run by default.
const USUAL_PLACES: [&str; 2] = [".", "monitor_output"];
/// The interval at which a change is polled.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Inspect and control a running training.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run's directory, or a directory of runs: the newest is used
    #[arg(conflicts_with_all = ["socket", "url"])]
    run: Option<PathBuf>,
    /// The run's unix socket
    #[arg(long, conflicts_with = "url")]
    socket: Option<PathBuf>,
    /// The run's address, http://HOST:PORT
    #[arg(long, requires = "token_file")]
    url: Option<String>,
    /// The file with the token, for --url
    #[arg(long)]
    token_file: Option<PathBuf>,
    #[command(subcommand)]
    order: Order,
}

#[derive(Debug, Subcommand)]
enum Order {
    /// Print the run's step, plan, cost, records and changes
    Status {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop measuring; steps are still counted
    Pause(Waiting),
    /// Resume measuring
    Resume(Waiting),
    /// Wait until all measured data is delivered
    Flush {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Capture whole steps: the inputs and outputs of every module and function
    Dump {
        #[command(flatten)]
        capture: Capture,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Change what is measured; unnamed settings stay unchanged
    Set {
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        waiting: Waiting,
    },
}

#[derive(Args, Debug)]
struct Waiting {
    /// Wait until every rank has switched, not only until the step is agreed
    #[arg(long)]
    wait: bool,
    /// Wait at most this many seconds
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Print the change as JSON
    #[arg(long)]
    json: bool,
}

/// The requested change. Each flag has the name of its key in the request, or is renamed to it, and is sent
/// automatically.
#[derive(Args, Debug, Serialize)]
#[group(required = true, multiple = true)]
struct Change {
    /// Measure a parameter or module by a prefix of its name; may be repeated
    #[arg(long = "target", value_name = "NAME", conflicts_with = "all_targets")]
    targets: Option<Vec<String>>,
    /// Measure everything
    #[arg(long)]
    #[serde(skip)]
    all_targets: bool,
    /// Measure one step in this many
    #[arg(long = "every", value_name = "STEPS")]
    step_interval: Option<u64>,
    /// The first measured step
    #[arg(long = "from", value_name = "STEP")]
    start_step: Option<u64>,
    /// The first step that is no longer measured
    #[arg(long = "until", value_name = "STEP")]
    stop_step: Option<u64>,
    /// Measure at most this many steps, counted from the switch
    #[arg(long = "collect", value_name = "STEPS")]
    collect_times: Option<u64>,
    /// The statistics, in column order: norm,max,mean
    #[arg(long, value_delimiter = ',')]
    ops: Option<Vec<String>>,
    /// Switch these signals on
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "KINDS",
        help = "Switch on: weight_grad, moments, param, activations, mg_direction, update"
    )]
    #[serde(skip)]
    on: Vec<String>,
    /// Switch these signals off
    #[arg(long, value_delimiter = ',', value_name = "KINDS")]
    #[serde(skip)]
    off: Vec<String>,
    /// The change as JSON, with the keys of `trainmon check-config`
    #[arg(long = "json-change", value_name = "JSON")]
    #[serde(skip)]
    raw: Option<String>,
}

/// The requested capture. Each flag has the name of its key in the request.
#[derive(Args, Debug, Serialize)]
struct Capture {
    /// The number of consecutive steps
    #[arg(long, value_name = "STEPS")]
    steps: Option<u32>,
    /// The first captured step [default: the first that all ranks can agree on]
    #[arg(long, value_name = "STEP")]
    at: Option<u64>,
    /// The level: L0 (modules), L1 (functions), mix (both), L2 (operators)
    #[arg(long)]
    level: Option<String>,
    /// The stored data
    #[arg(long, help = "The stored data: statistics, tensor, structure, nan_check, overflow_check")]
    task: Option<String>,
    /// The first and last captured entry
    #[arg(long, num_args = 2, value_names = ["FIRST", "LAST"])]
    scope: Option<Vec<String>>,
    /// Capture only entries whose name contains this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    list: Option<Vec<String>>,
    /// The summary of a tensor: statistics, md5, xor
    #[arg(long = "summary-mode", value_name = "MODE")]
    summary_mode: Option<String>,
}

/// The given flags, as the keys of a request. The run validates them.
fn keys_of(flags: &impl Serialize) -> Map<String, Value> {
    let keys = json!(flags).as_object().cloned().unwrap_or_default();
    keys.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

impl Change {
    /// The request's JSON. The user's own JSON is sent unchanged.
    fn text(&self) -> String {
        if let Some(text) = &self.raw {
            return text.clone();
        }
        let mut change = keys_of(self);
        if self.all_targets {
            change.shift_insert(0, "targets".to_owned(), json!([]));
        }
        let switches = [(&self.on, true), (&self.off, false)];
        let kinds: Map<String, Value> = switches
            .into_iter()
            .flat_map(|(kinds, is_on)| kinds.iter().map(move |kind| (kind.clone(), Value::Bool(is_on))))
            .collect();
        if !kinds.is_empty() {
            change.insert("kinds".to_owned(), Value::Object(kinds));
        }
        Value::Object(change).to_string()
    }
}

/// Executes the command.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    match obey(arguments, printer) {
        Ok((text, outcome)) => {
            printer.result(&text)?;
            Ok(outcome)
        }
        Err(error) => {
            printer.failure(&error, Some(error.hint()).filter(|hint| !hint.is_empty()));
            Ok(Outcome::Failed)
        }
    }
}

fn obey(arguments: &Arguments, printer: &mut Printer) -> Result<(String, Outcome), ControlError> {
    let (endpoint, newest) = find(arguments)?;
    if let Some(newest) = newest {
        printer.note(&newest.in_words("using"));
    }
    match &arguments.order {
        Order::Status { json } => {
            let status = endpoint.ask("GET", "/status", "")?;
            Ok((if *json { pretty(&status) } else { messages::status(&status) }, Outcome::Fine))
        }
        Order::Flush { json } => {
            let answer = endpoint.ask("POST", "/flush", "")?;
            let text = format!("{} records delivered\n", answer["records"]);
            Ok((if *json { pretty(&answer) } else { text }, Outcome::Fine))
        }
        Order::Pause(waiting) => change(&endpoint, "/pause", "", waiting),
        Order::Resume(waiting) => change(&endpoint, "/resume", "", waiting),
        Order::Dump { capture, waiting } => dump(&endpoint, &Value::Object(keys_of(capture)).to_string(), waiting),
        Order::Set { change: wanted, waiting } => change(&endpoint, "/set", &wanted.text(), waiting),
    }
}

fn find(arguments: &Arguments) -> Result<(Endpoint, Option<NewestRun>), ControlError> {
    if let Some(socket) = &arguments.socket {
        return Ok((Endpoint::Socket(socket.clone()), None));
    }
    if let (Some(url), Some(token_file)) = (&arguments.url, &arguments.token_file) {
        return Ok((Endpoint::http(url, token_file)?, None));
    }
    if let Some(place) = &arguments.run {
        return Endpoint::of_run(place);
    }
    let found = USUAL_PLACES.iter().map(|place| Endpoint::of_run(Path::new(place)));
    let mut found = found.filter(|endpoint| !matches!(endpoint, Err(ControlError::NoRun { .. })));
    found.next().unwrap_or_else(|| Err(ControlError::NoRun { place: USUAL_PLACES[1].into() }))
}

/// Requests a change and waits until its step is known, or until it is in effect on all ranks.
fn change(endpoint: &Endpoint, path: &str, body: &str, waiting: &Waiting) -> Result<(String, Outcome), ControlError> {
    order(endpoint, path, body, waiting, "in effect on all ranks", |change, _| {
        let is_settled = change["stage"] == "switched" || (change["stage"] == "agreed" && !waiting.wait);
        let is_late = change["late"].as_array().is_some_and(|late| !late.is_empty());
        is_settled.then(|| (change.clone(), messages::change(change), is_late))
    })
}

/// Requests a capture and waits until its step is known, or until its files are written.
fn dump(endpoint: &Endpoint, body: &str, waiting: &Waiting) -> Result<(String, Outcome), ControlError> {
    order(endpoint, "/dump", body, waiting, "complete on all ranks", |change, status| {
        if !matches!(change["stage"].as_str(), Some("agreed" | "switched")) {
            return None;
        }
        if !waiting.wait {
            return Some((change.clone(), messages::capture_agreed(change), false));
        }
        let capture = with_id(&status["captures"], &change["id"]).filter(|capture| is_over(capture, status))?;
        let is_whole = capture["stage"] == "done" && capture["ranks_failed"].as_array().is_none_or(Vec::is_empty);
        Some((capture.clone(), messages::capture(capture), !is_whole))
    })
}

/// Sends a request and polls its status until `settled` returns its final state, that state as text, and whether it
/// differs from the request. `settled` receives the change and the status. `awaited`: the state to wait for after the
/// step.
fn order(
    endpoint: &Endpoint,
    path: &str,
    body: &str,
    waiting: &Waiting,
    awaited: &'static str,
    settled: impl Fn(&Value, &Value) -> Option<(Value, String, bool)>,
) -> Result<(String, Outcome), ControlError> {
    let id = endpoint.ask("POST", path, body)?["id"].as_u64().unwrap_or(0);
    let deadline = Instant::now() + Duration::from_secs(waiting.timeout);
    loop {
        let status = endpoint.ask("GET", "/status", "")?;
        let change = with_id(&status["changes"], &json!(id)).unwrap_or(&Value::Null);
        if change["stage"] == "withdrawn" {
            return Err(ControlError::Withdrawn { why: change["why"].as_str().unwrap_or_default().to_owned() });
        }
        if let Some((what, words, is_other)) = settled(change, &status) {
            let text = if waiting.json { pretty(&what) } else { words + "\n" };
            return Ok((text, Outcome::of(is_other)));
        }
        if Instant::now() >= deadline {
            let awaited = if waiting.wait { awaited } else { "agreed" };
            return Err(ControlError::TooLong { id, awaited, seconds: waiting.timeout });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn with_id<'a>(all: &'a Value, id: &Value) -> Option<&'a Value> {
    all.as_array()?.iter().find(|one| one["id"] == *id)
}

/// Whether every rank has reported the end of a capture.
fn is_over(capture: &Value, status: &Value) -> bool {
    let count = |key: &str| capture[key].as_array().map_or(0, Vec::len) as u64;
    let others = status["world_size"].as_u64().unwrap_or(1).saturating_sub(1);
    matches!(capture["stage"].as_str(), Some("done" | "failed"))
        && count("ranks_done") + count("ranks_failed") >= others
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use trainmon_core::config::Window;

    use super::*;

    #[test]
    fn every_key_of_the_window_has_a_flag_that_is_sent_by_its_name() {
        let flags = Change::augment_args(clap::Command::new("set"));
        for key in keys_of(&Window { stop_step: Some(1), ..Window::default() }).keys() {
            assert!(flags.get_arguments().any(|flag| flag.get_id() == key.as_str()), "no flag for `{key}`");
        }
    }
}
