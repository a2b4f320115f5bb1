//! Formats a run's status for people.

use std::fmt::Write as _;

use serde_json::Value;

/// A status as lines of text.
pub(crate) fn status(status: &Value) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |words: String| writeln!(text, "{words}").unwrap_or_default();
    let number = |pointer: &str| status.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    let word = |pointer: &str| status.pointer(pointer).map(plain).unwrap_or_default();
    line(format!(
        "run {}: rank {} of {}, pid {}, trainmon {}, watched for {}",
        word("/run"),
        word("/rank"),
        word("/world_size"),
        word("/pid"),
        word("/version"),
        duration(number("/uptime_seconds"))
    ));
    let is_measured = if status["collecting"] == true { "measured" } else { "not measured" };
    line(format!("step {}: {is_measured}; {:.3} s per step", word("/step"), number("/seconds_per_step")));
    if let Some(hang) = status["hang"].as_str() {
        line(format!("hangs: {hang}"));
    }
    for open in elements(&status["collectives"]["in_progress"]) {
        line(in_progress(open));
    }
    for straggler in elements(&status["collectives"]["stragglers"]) {
        line(comes_last(straggler));
    }
    line(format!("plan: {}", plan(&status["plan"])));
    line(cost(&status["cost"]));
    line(format!(
        "records: {} observed, {} not sampled, {} measured, {} dropped",
        word("/ledger/observed"),
        word("/ledger/not_sampled"),
        word("/ledger/offered"),
        sum(&status["ledger"]["dropped"])
    ));
    for (name, counts) in members(&status["sinks"]) {
        let queue = &status["queues"][name];
        line(format!(
            "  {name:<12} {} of {} delivered, {} failed, {} dropped; {} of {} steps queued; {}",
            plain(&counts["exported"]),
            plain(&counts["accepted"]),
            plain(&counts["failed"]),
            plain(&counts["dropped"]),
            plain(&queue["waiting"]),
            plain(&queue["capacity"]),
            list(&status["locations"][name], ", ")
        ));
    }
    for each in elements(&status["changes"]) {
        line(format!("change {}", change(each)));
    }
    for each in elements(&status["captures"]) {
        line(format!("capture {}", capture(each)));
    }
    text
}

/// A collective operation that is in progress.
fn in_progress(open: &Value) -> String {
    let (op, group, sequence) = (plain(&open["op"]), plain(&open["process_group"]), plain(&open["sequence"]));
    let ranks = plain(&open["group_size"]);
    let caller = open["caller"].as_str().map(|line| format!(", called at {line}")).unwrap_or_default();
    let mib = open["bytes"].as_f64().unwrap_or(0.0) / f64::from(1 << 20);
    let seconds = open["seconds"].as_f64().unwrap_or(0.0);
    format!("in progress: {op} {sequence} of group {group} ({ranks} ranks), {mib:.1} MiB{caller}, for {seconds:.1} s")
}

/// The rank that the other ranks of a group wait for.
fn comes_last(straggler: &Value) -> String {
    let (rank, group, step) =
        (plain(&straggler["rank"]), plain(&straggler["process_group"]), plain(&straggler["step"]));
    let milliseconds = 1e3 * straggler["lag_seconds"].as_f64().unwrap_or(0.0);
    format!(
        "slowest in group {group}: rank {rank}; the other ranks waited {milliseconds:.1} ms per step for it, up to step {step}"
    )
}

/// A change and its stage.
pub(crate) fn change(change: &Value) -> String {
    let (id, what) = (plain(&change["id"]), plain(&change["what"]));
    let step = plain(&change["step"]);
    let silent = list(&change["waiting_for"], ", ");
    let stage = match change["stage"].as_str().unwrap_or_default() {
        "waiting" => "waiting for the previous change".to_owned(),
        "asking" => format!("proposed, no response yet from rank {silent}"),
        "agreed" => format!("agreed, effective from step {step}"),
        "switched" if silent.is_empty() => format!("in effect since step {step}"),
        "switched" => format!("in effect since step {step}, no confirmation from rank {silent}"),
        "withdrawn" => format!("withdrawn: {}", plain(&change["why"])),
        other => other.to_owned(),
    };
    let mut text = format!("{id}: {what}: {stage}");
    for late in elements(&change["late"]) {
        // Writing to a String cannot fail.
        write!(text, "; rank {} only at step {}", plain(&late["rank"]), plain(&late["step"])).unwrap_or_default();
    }
    text
}

/// A capture whose first step is agreed.
pub(crate) fn capture_agreed(change: &Value) -> String {
    let (id, what, step) = (plain(&change["id"]), plain(&change["what"]), plain(&change["step"]));
    format!("{id}: {what}: agreed, effective from step {step}")
}

/// A capture and its stage.
pub(crate) fn capture(capture: &Value) -> String {
    let (id, what) = (plain(&capture["id"]), plain(&capture["what"]));
    let places = list(&capture["places"], ", ");
    let size = capture["bytes"].as_f64().unwrap_or(0.0) / f64::from(1 << 20);
    let stage = match capture["stage"].as_str().unwrap_or_default() {
        "waiting" => format!("waiting for step {}", plain(&capture["first"])),
        "running" => format!("running: {places}"),
        "done" => format!("done, {size:.1} MiB: {places}"),
        "failed" => format!("incomplete: {}: {places}", plain(&capture["why"])),
        other => other.to_owned(),
    };
    let ranks = |key: &str, words: &str| match list(&capture[key], ", ") {
        none if none.is_empty() => String::new(),
        ranks => format!("; {words} rank {ranks}"),
    };
    format!("{id}: {what}: {stage}{}{}", ranks("ranks_done", "done on"), ranks("ranks_failed", "incomplete on"))
}

fn plan(plan: &Value) -> String {
    const SIGNALS: [&str; 6] = ["weight_grad", "moments", "param", "activations", "mg_direction", "update"];
    let on = SIGNALS.iter().filter(|name| plan[**name].is_object());
    let signals: Vec<String> = on.map(|name| format!("{name} [{}]", list(&plan[*name]["ops"], " "))).collect();
    let signals = if signals.is_empty() { "nothing".to_owned() } else { signals.join(", ") };
    let window = &plan["window"];
    let steps = match window["step_interval"].as_u64() {
        Some(1) | None => "every step".to_owned(),
        Some(interval) => format!("one step in {interval}"),
    };
    let end =
        if window["stop_step"].is_null() { String::new() } else { format!(" to {}", plain(&window["stop_step"])) };
    let targets = list(&plan["targets"], ", ");
    let targets = if targets.is_empty() { "everything".to_owned() } else { targets };
    let paused = if plan["paused"] == true { "paused; " } else { "" };
    format!("{paused}{signals}; {steps} from {}{end}; of {targets}", plain(&window["start_step"]))
}

fn cost(cost: &Value) -> String {
    let share = match cost["share_of_step"].as_f64() {
        Some(share) => format!("{:.2} % of the step", 100.0 * share),
        None => "not yet known".to_owned(),
    };
    let ratio = cost["sampling_ratio"].as_f64().unwrap_or(1.0);
    let budget = match cost["budget"].as_f64() {
        Some(budget) if ratio < 1.0 => {
            format!(" (budget {} %: one layer in {:.0} is measured per step)", 100.0 * budget, 1.0 / ratio)
        }
        Some(budget) => format!(" (budget {} %)", 100.0 * budget),
        None => String::new(),
    };
    let read = cost["bytes_read"].as_f64().unwrap_or(0.0) / f64::from(1 << 20);
    format!("cost: {share}{budget}, {read:.1} MiB read")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn list(values: &Value, between: &str) -> String {
    elements(values).map(plain).collect::<Vec<_>>().join(between)
}

fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn sum(counts: &Value) -> u64 {
    members(counts).filter_map(|(_, count)| count.as_u64()).sum()
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}
