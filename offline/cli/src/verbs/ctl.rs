//! `trainmon ctl`: its arguments and what it does with them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use trainmon_report::{Advise as _, Outcome, Printer};
use trainmon_runs::NewestRun;

use crate::ctl::{ControlError, Door, messages};

/// How it is used.
pub(crate) const EXAMPLES: &str = "\
Examples:
  trainmon ctl status                                     the newest run below ./monitor_output
  trainmon ctl monitor_output/train-1123-043812 pause   
  trainmon ctl run resume --wait                          until every rank has switched
  trainmon ctl run set --every 10 --ops norm,max          one step in ten, other statistics
  trainmon ctl run set --target layers.7 --target head --on moments --off activations
  trainmon ctl run set --collect 20 --from 5000           20 steps from step 5000 on
  trainmon ctl run dump --steps 2 --level mix --wait      capture two steps, all ranks the same
  trainmon ctl run dump --at 5000 --task tensor --list layers.7
  trainmon ctl run set --json-change '{\"targets\": [], \"stop_step\": null}'
  trainmon ctl --socket /tmp/trainmon.sock flush          all that was measured is on disk
  trainmon ctl --url http://127.0.0.1:9470 --token-file run/control.token status --json | jq .step

A change takes effect at one step on every rank; the answer names it.
Exit codes: 0 fine, 1 a rank switched at another step or has no whole capture (with --wait), 2 an error";

/// Where the newest run is looked for if no place is given.
const USUAL_PLACES: [&str; 2] = [".", "monitor_output"];
/// Between looks at a change.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Speak to a training that is being watched.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The run's directory, or one of several runs: the newest is taken
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
    /// Say how the run is: step, plan, cost, records, changes
    Status {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure nothing; the steps are counted on
    Pause(Waiting),
    /// Measure again
    Resume(Waiting),
    /// Wait until all that was measured is delivered
    Flush {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Capture whole steps: what every module and function takes in and gives out
    Dump {
        #[command(flatten)]
        capture: Capture,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Change what is measured; what is not named stays
    Set {
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        waiting: Waiting,
    },
}

#[derive(Args, Debug)]
struct Waiting {
    /// Wait until every rank has switched, not only until the step is agreed upon
    #[arg(long)]
    wait: bool,
    /// Wait at most this many seconds
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Print the change as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct Change {
    /// A parameter or module to measure, by the beginning of its name; may be given several times
    #[arg(long = "target", value_name = "NAME", conflicts_with = "all_targets")]
    targets: Vec<String>,
    /// Measure everything
    #[arg(long)]
    all_targets: bool,
    /// Measure one step in this many
    #[arg(long, value_name = "STEPS")]
    every: Option<u64>,
    /// The first step measured
    #[arg(long, value_name = "STEP")]
    from: Option<u64>,
    /// The first step no longer measured
    #[arg(long, value_name = "STEP")]
    until: Option<u64>,
    /// At most this many steps, counted from the switch
    #[arg(long, value_name = "STEPS")]
    collect: Option<u64>,
    /// The statistics, in column order: norm,max,mean
    #[arg(long, value_delimiter = ',')]
    ops: Vec<String>,
    /// Switch these signals on
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "KINDS",
        help = "Switch on: weight_grad, moments, param, activations, mg_direction, update"
    )]
    on: Vec<String>,
    /// Switch off
    #[arg(long, value_delimiter = ',', value_name = "KINDS")]
    off: Vec<String>,
    /// The change as JSON, with the keys of `trainmon check-config`
    #[arg(long = "json-change", value_name = "JSON")]
    raw: Option<String>,
}

#[derive(Args, Debug)]
struct Capture {
    /// How many steps in a row
    #[arg(long, value_name = "STEPS")]
    steps: Option<u32>,
    /// The first step captured [default: the first that all ranks can agree upon]
    #[arg(long, value_name = "STEP")]
    at: Option<u64>,
    /// How finely: L0 (modules), L1 (functions), mix (both), L2 (operators)
    #[arg(long)]
    level: Option<String>,
    /// What is kept of each value
    #[arg(long, help = "What is kept: statistics, tensor, structure, nan_check, overflow_check")]
    task: Option<String>,
    /// First and last entry captured
    #[arg(long, num_args = 2, value_names = ["FIRST", "LAST"])]
    scope: Vec<String>,
    /// A text of which an entry's name must contain one; may be given several times
    #[arg(long, value_name = "TEXT")]
    list: Vec<String>,
    /// What is said of a tensor: statistics, md5, xor
    #[arg(long = "summary-mode", value_name = "MODE")]
    summary_mode: Option<String>,
}

impl Capture {
    /// As the run reads it: it says what is wrong.
    fn text(&self) -> String {
        let mut request = Map::new();
        let mut put = |key: &str, value: Option<Value>| request.extend(value.map(|value| (key.to_owned(), value)));
        let words = |words: &[String]| (!words.is_empty()).then(|| json!(words));
        put("steps", self.steps.map(Value::from));
        put("at", self.at.map(Value::from));
        put("level", self.level.clone().map(Value::from));
        put("task", self.task.clone().map(Value::from));
        put("scope", words(&self.scope));
        put("list", words(&self.list));
        put("summary_mode", self.summary_mode.clone().map(Value::from));
        Value::Object(request).to_string()
    }
}

impl Change {
    /// As the run reads it. A text of the caller's own is sent as it is: the run says what is wrong with it.
    fn text(&self) -> String {
        if let Some(text) = &self.raw {
            return text.clone();
        }
        let mut change = Map::new();
        let mut put = |key: &str, value: Option<Value>| change.extend(value.map(|value| (key.to_owned(), value)));
        let words = |words: &[String]| (!words.is_empty()).then(|| json!(words));
        put("targets", words(&self.targets).or_else(|| self.all_targets.then(|| json!([]))));
        put("step_interval", self.every.map(Value::from));
        put("start_step", self.from.map(Value::from));
        put("stop_step", self.until.map(Value::from));
        put("collect_times", self.collect.map(Value::from));
        put("ops", words(&self.ops));
        let on = self.on.iter().map(|kind| (kind.clone(), Value::Bool(true)));
        let kinds: Map<String, Value> =
            on.chain(self.off.iter().map(|kind| (kind.clone(), Value::Bool(false)))).collect();
        put("kinds", (!kinds.is_empty()).then_some(Value::Object(kinds)));
        Value::Object(change).to_string()
    }
}

/// Does what was ordered.
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
    let (door, newest) = find(arguments)?;
    if let Some(newest) = newest {
        printer.note(&newest.in_words("speaking to"));
    }
    match &arguments.order {
        Order::Status { json } => {
            let status = door.ask("GET", "/status", "")?;
            Ok((if *json { pretty(&status) } else { messages::status(&status) }, Outcome::Fine))
        }
        Order::Flush { json } => {
            let answer = door.ask("POST", "/flush", "")?;
            let text = format!("{} records delivered\n", answer["records"]);
            Ok((if *json { pretty(&answer) } else { text }, Outcome::Fine))
        }
        Order::Pause(waiting) => change(&door, "/pause", "", waiting),
        Order::Resume(waiting) => change(&door, "/resume", "", waiting),
        Order::Dump { capture, waiting } => dump(&door, &capture.text(), waiting),
        Order::Set { change: wanted, waiting } => change(&door, "/set", &wanted.text(), waiting),
    }
}

fn find(arguments: &Arguments) -> Result<(Door, Option<NewestRun>), ControlError> {
    if let Some(socket) = &arguments.socket {
        return Ok((Door::Socket(socket.clone()), None));
    }
    if let (Some(url), Some(token_file)) = (&arguments.url, &arguments.token_file) {
        return Ok((Door::http(url, token_file)?, None));
    }
    if let Some(place) = &arguments.run {
        return Door::of_run(place);
    }
    let found = USUAL_PLACES.iter().map(|place| Door::of_run(Path::new(place)));
    let mut found = found.filter(|door| !matches!(door, Err(ControlError::NoRun { .. })));
    found.next().unwrap_or_else(|| Err(ControlError::NoRun { place: USUAL_PLACES[1].into() }))
}

/// Orders a change and waits until its step is known, or until it rules everywhere.
fn change(door: &Door, path: &str, body: &str, waiting: &Waiting) -> Result<(String, Outcome), ControlError> {
    let order = door.ask("POST", path, body)?;
    let id = order["id"].as_u64().unwrap_or(0);
    let deadline = Instant::now() + Duration::from_secs(waiting.timeout);
    loop {
        let status = door.ask("GET", "/status", "")?;
        let changes = status["changes"].as_array();
        let found = changes.and_then(|changes| changes.iter().find(|change| change["id"] == id));
        let stage = found.and_then(|change| change["stage"].as_str()).unwrap_or_default();
        let is_settled = stage == "switched" || (stage == "agreed" && !waiting.wait);
        match found {
            Some(change) if stage == "withdrawn" => {
                return Err(ControlError::Withdrawn { why: change["why"].as_str().unwrap_or_default().to_owned() });
            }
            Some(change) if is_settled => {
                let is_late = change["late"].as_array().is_some_and(|late| !late.is_empty());
                let text = if waiting.json { pretty(change) } else { messages::change(change) + "\n" };
                return Ok((text, Outcome::of(is_late)));
            }
            _ => {}
        }
        if Instant::now() >= deadline {
            let awaited = if waiting.wait { "in force everywhere" } else { "agreed upon" };
            return Err(ControlError::TooLong { id, awaited, seconds: waiting.timeout });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Orders a capture and waits until its step is known, or until its files are there.
fn dump(door: &Door, body: &str, waiting: &Waiting) -> Result<(String, Outcome), ControlError> {
    let order = door.ask("POST", "/dump", body)?;
    let id = order["id"].as_u64().unwrap_or(0);
    let deadline = Instant::now() + Duration::from_secs(waiting.timeout);
    loop {
        let status = door.ask("GET", "/status", "")?;
        let of_id = |key: &str| status[key].as_array().and_then(|all| all.iter().find(|one| one["id"] == id)).cloned();
        let (change, capture) = (of_id("changes").unwrap_or_default(), of_id("captures"));
        let stage = change["stage"].as_str().unwrap_or_default();
        if stage == "withdrawn" {
            return Err(ControlError::Withdrawn { why: change["why"].as_str().unwrap_or_default().to_owned() });
        }
        let is_agreed = matches!(stage, "agreed" | "switched");
        if is_agreed && !waiting.wait {
            let text = if waiting.json { pretty(&change) } else { messages::capture_agreed(&change) + "\n" };
            return Ok((text, Outcome::Fine));
        }
        if let Some(capture) = capture.filter(|capture| is_agreed && is_over(capture, &status)) {
            let is_whole = capture["stage"] == "done" && capture["ranks_failed"].as_array().is_none_or(Vec::is_empty);
            let text = if waiting.json { pretty(&capture) } else { messages::capture(&capture) + "\n" };
            return Ok((text, Outcome::of(!is_whole)));
        }
        if Instant::now() >= deadline {
            let awaited = if waiting.wait { "made everywhere" } else { "agreed upon" };
            return Err(ControlError::TooLong { id, awaited, seconds: waiting.timeout });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whether every rank has told that a capture is over.
fn is_over(capture: &Value, status: &Value) -> bool {
    let count = |key: &str| capture[key].as_array().map_or(0, Vec::len) as u64;
    let others = status["world_size"].as_u64().unwrap_or(1).saturating_sub(1);
    matches!(capture["stage"].as_str(), Some("done" | "failed"))
        && count("ranks_done") + count("ranks_failed") >= others
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
