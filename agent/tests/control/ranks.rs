//! Ranks as processes of their own: each switches at the step all agreed upon, proven by their CSV files.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use trainmon_agent::core::config::Config;
use trainmon_agent::core::{Kind, Rank};
use trainmon_agent::{Options, Ranks};

use crate::client::ControlAddresses;
use crate::training::{PATIENCE, Training, options, rows, steps_of, wait_until};

const ROLE: &str = "TRAINMON_TEST_RANK";
const BASE: &str = "TRAINMON_TEST_BASE";
const PACE_MS: &str = "TRAINMON_TEST_PACE_MS";
const CONFIG: &str = r#"{"wg_distribution": true, "control": {}, "queue_steps": 4096}"#;

const SET: &str = r#"{"step_interval": 3, "kinds": {"moments": true}}"#;
const NARROW: &str = r#"{"targets": ["h.1"]}"#;

/// More than the longest interval ordered here.
const STEPS_AFTER_THE_LAST_WORD: usize = 10;

/// One rank in a process of its own: this very test, asked to train.
struct Process {
    child: Child,
}

impl Process {
    fn start(test: &str, rank: u32, world: u32, base: &Path, pace: Duration) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(ROLE, format!("{rank}/{world}"))
            .env(BASE, base)
            .env(PACE_MS, pace.as_millis().to_string())
            .env_remove("MASTER_PORT")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child }
    }

    /// Ends the training at its next step, and asserts that all went well in there.
    fn finish(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Trains as a rank if this process was asked to: until its standard input closes. Does not return then.
fn train_if_asked() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (rank, world) = role.split_once('/').unwrap();
    let base = PathBuf::from(std::env::var(BASE).unwrap());
    let pace = Duration::from_millis(std::env::var(PACE_MS).unwrap().parse().unwrap());
    let rank = Rank(rank.parse().unwrap());
    let ranks = Ranks { rank, local_rank: rank, world_size: world.parse().unwrap() };
    let config = Config::parse(CONFIG, "test.json", &|_| None).unwrap().config;
    let options = Options { ranks: Some(ranks), run: Some("job".to_owned()), ..options(&base) };
    let mut training = Training::start_with(config, options);
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    let listener = std::thread::Builder::new().name("listener".to_owned()).spawn(move || {
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        told.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    listener.unwrap();
    let deadline = Instant::now() + 4 * PATIENCE;
    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
        assert!(Instant::now() < deadline, "nobody ended this rank");
        training.step();
        std::thread::sleep(pace);
    }
    // So that the last switch has measured steps behind it.
    training.steps(STEPS_AFTER_THE_LAST_WORD);
    training.finish();
    // The test program's own report would follow.
    std::io::stdout().flush().unwrap();
    std::process::exit(0);
}

fn addresses(base: &Path) -> ControlAddresses {
    let directory = base.join("control-job");
    wait_until("rank 0", || directory.join("control.json").exists());
    ControlAddresses::of(&directory)
}

fn change(addresses: &ControlAddresses, id: u64) -> Value {
    let status = addresses.get("/status").body;
    status["changes"].as_array().unwrap().iter().find(|change| change["id"] == id).cloned().unwrap_or_default()
}

/// An order that took effect.
struct Obeyed {
    path: &'static str,
    body: &'static str,
    /// The step agreed upon.
    step: u64,
    /// Ranks that switched at another step, as they told.
    late: BTreeMap<u64, u64>,
}

impl Obeyed {
    /// The first step under it on a rank.
    fn step_on(&self, rank: u64) -> u64 {
        self.late.get(&rank).copied().unwrap_or(self.step)
    }
}

/// Sends an order until every rank obeyed it at the step agreed upon. On a machine busy enough a rank learns of it too late,
/// or does not answer in time, and says so: then it is sent again. Gives every time it took effect.
fn order(addresses: &ControlAddresses, path: &'static str, body: &'static str) -> Vec<Obeyed> {
    let deadline = Instant::now() + 2 * PATIENCE;
    let mut obeyed = Vec::new();
    while Instant::now() < deadline {
        let answer = addresses.post(path, body);
        assert_eq!(answer.code, 202, "{}", answer.body);
        let id = answer.body["id"].as_u64().unwrap();
        wait_until("the switch", || matches!(change(addresses, id)["stage"].as_str(), Some("switched" | "withdrawn")));
        let change = change(addresses, id);
        if change["stage"] == "withdrawn" {
            continue;
        }
        assert_eq!(change["waiting_for"], Value::Array(Vec::new()), "{change}");
        let number = |value: &Value| value.as_u64().unwrap();
        let late = change["late"].as_array().unwrap().iter();
        let late = late.map(|late| (number(&late["rank"]), number(&late["step"]))).collect::<BTreeMap<_, _>>();
        let is_on_time = late.is_empty();
        obeyed.push(Obeyed { path, body, step: number(&change["step"]), late });
        if is_on_time {
            return obeyed;
        }
    }
    panic!("no order was obeyed on time");
}

/// The steps a rank measures after these orders, in which every third step is measured from a `/set` on.
fn expected_steps(rank: u64, orders: &[Obeyed], last: u64, is_moment: bool) -> Vec<u64> {
    let is_measured = |step: &u64| {
        let obeyed = || orders.iter().filter(|order| order.step_on(rank) <= *step);
        let is_paused = obeyed().rfind(|order| order.path != "/set").is_some_and(|order| order.path == "/pause");
        let origin = obeyed().rfind(|order| order.body == SET).map(|order| order.step);
        !is_paused && origin.map_or(!is_moment, |origin| (step - origin).is_multiple_of(3))
    };
    (0..=last).filter(is_measured).collect()
}

fn run_directories(base: &Path, rank: u32) -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().contains(&format!("-rank{rank}-"));
    std::fs::read_dir(base).unwrap().map(|entry| entry.unwrap().path()).filter(is_ours).collect()
}

fn run_directory(base: &Path, rank: u32) -> PathBuf {
    run_directories(base, rank).pop().unwrap()
}

/// The steps that have a file: this may be asked while the run goes on.
fn steps_with_a_file(directory: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let step = |name: String| name.strip_prefix("grad_reduced_")?.split('-').next()?.parse().ok();
    let mut steps: Vec<u64> = names.filter_map(step).collect();
    steps.sort_unstable();
    steps
}

#[test]
fn two_ranks_of_different_speeds_switch_at_the_same_steps_as_their_files_prove() {
    train_if_asked();
    let test = "ranks::two_ranks_of_different_speeds_switch_at_the_same_steps_as_their_files_prove";
    let base = tempfile::tempdir().unwrap();
    let paces = [Duration::from_millis(12), Duration::from_millis(10)];
    let ranks: Vec<Process> =
        (0u32..).zip(paces).map(|(rank, pace)| Process::start(test, rank, 2, base.path(), pace)).collect();
    let addresses = addresses(base.path());
    let mut orders = Vec::new();
    for (path, body) in [("/set", SET), ("/pause", ""), ("/resume", ""), ("/set", NARROW)] {
        orders.extend(order(&addresses, path, body));
    }
    ranks.into_iter().for_each(Process::finish);
    for rank in 0..2 {
        let directory = run_directory(base.path(), rank);
        let rank = u64::from(rank);
        let (gradients, moments) = (steps_of(&directory, Kind::GradReduced), steps_of(&directory, Kind::ExpAvg));
        let last = *gradients.last().unwrap();
        assert!(last >= orders.last().unwrap().step, "rank {rank} ended before the last switch");
        let steps: Vec<(&str, u64)> = orders.iter().map(|order| (order.path, order.step_on(rank))).collect();
        assert_eq!(gradients, expected_steps(rank, &orders, last, false), "rank {rank}: {steps:?}");
        assert_eq!(moments, expected_steps(rank, &orders, last, true), "rank {rank}: {steps:?}");
        let narrowed = orders.iter().find(|order| order.body == NARROW).unwrap().step_on(rank);
        let of_others = rows(&directory, Kind::GradReduced).into_iter().filter(|(_, name)| name != "h.1.fc.weight");
        assert!(of_others.map(|(step, _)| step).max().unwrap() < narrowed);
        println!("rank {rank}: {steps:?}");
    }
}

#[test]
fn a_rank_that_is_killed_before_it_answers_makes_the_change_void() {
    train_if_asked();
    let test = "ranks::a_rank_that_is_killed_before_it_answers_makes_the_change_void";
    let base = tempfile::tempdir().unwrap();
    let pace = Duration::from_millis(10);
    let mut ranks: Vec<Process> = (0..3).map(|rank| Process::start(test, rank, 3, base.path(), pace)).collect();
    let addresses = addresses(base.path());
    order(&addresses, "/set", r#"{"eps": 0.5}"#);
    ranks.remove(1).kill();
    let id = addresses.post("/set", r#"{"step_interval": 1000}"#).body["id"].as_u64().unwrap();
    wait_until("the withdrawal", || change(&addresses, id)["stage"] == "withdrawn");
    let change = change(&addresses, id);
    assert_eq!(change["why"], "no answer within 20 s from rank 1");
    assert_eq!(addresses.get("/status").body["plan"]["window"]["step_interval"], 1);
    ranks.into_iter().for_each(Process::finish);
    for rank in [0, 2] {
        let steps = steps_of(&run_directory(base.path(), rank), Kind::GradReduced);
        assert_eq!(steps, (0..=*steps.last().unwrap()).collect::<Vec<u64>>(), "rank {rank} measured every step");
    }
}

#[test]
fn a_rank_that_is_started_anew_measures_what_the_others_agreed_upon() {
    train_if_asked();
    let test = "ranks::a_rank_that_is_started_anew_measures_what_the_others_agreed_upon";
    let base = tempfile::tempdir().unwrap();
    let pace = Duration::from_millis(10);
    let mut ranks: Vec<Process> = (0..2).map(|rank| Process::start(test, rank, 2, base.path(), pace)).collect();
    let addresses = addresses(base.path());
    let agreed = order(&addresses, "/set", SET).pop().unwrap().step;
    let before = run_directories(base.path(), 1);
    ranks.remove(1).kill();
    ranks.push(Process::start(test, 1, 2, base.path(), pace));
    let new = || run_directories(base.path(), 1).into_iter().find(|directory| !before.contains(directory));
    wait_until("the new process", || new().is_some());
    let directory = new().unwrap();
    let is_thinned = |pair: &[u64]| pair[1] - pair[0] == 3;
    wait_until("the plan of the others", || steps_with_a_file(&directory).windows(2).any(is_thinned));
    assert_eq!(addresses.get("/status").body["changes"].as_array().unwrap().last().unwrap()["stage"], "switched");
    ranks.into_iter().for_each(Process::finish);
    let steps = steps_of(&directory, Kind::GradReduced);
    let first = steps.windows(2).position(is_thinned).unwrap();
    assert!(steps[first] >= agreed, "{steps:?}");
    let thinned: Vec<u64> = steps[first..].iter().map(|step| (step - agreed) % 3).collect();
    assert_eq!(thinned, vec![0; thinned.len()], "agreed for step {agreed}: {steps:?}");
    assert_eq!(steps_of(&directory, Kind::ExpAvg).last(), steps.last());
}

#[test]
fn two_runs_do_not_meet_in_one_control_directory() {
    let base = tempfile::tempdir().unwrap();
    let shared = base.path().join("shared");
    let config = format!(r#"{{"wg_distribution": true, "control": {{"directory": {:?}}}}}"#, shared.to_str().unwrap());
    let first = Training::start(base.path(), &config);
    let second = Training::start(base.path(), &config);
    assert!(
        second.said().iter().any(|said| said.contains("another run uses the control directory")),
        "{:?}",
        second.said()
    );
    let status = ControlAddresses::of(&shared).get("/status").body;
    assert_eq!(status["locations"]["csv"][0], first.directory().display().to_string());
    second.finish();
    first.finish();
}
