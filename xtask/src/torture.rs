//! `cargo xtask torture`: small real trainings, killed at random moments, and what their journals hold of them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::running::{self, Program};
use crate::{process, provision, workspace};

/// Busy processes beside the trainings.
const LOADS: [u32; 2] = [1, 8];
/// Weights and gradients of a small net; a journal that holds many times the steps a training gets to.
const CONFIG: &str = r#"{"targets": {}, "wg_distribution": true, "param_distribution": true, "ops": ["norm", "mean"],
    "format": ["csv", "journal"], "journal": {"size_mb": 2}}"#;
/// How long after its first step a training is killed at the latest.
const LONGEST: Duration = Duration::from_millis(200);
/// One in so many ends by `_exit` after one of its first so many steps.
const LEAVES_EVERY: u32 = 10;
const LAST_STEPS: u64 = 100;
/// A training whose parent went away ends by itself.
const MOST_STEPS: u64 = 100_000;

/// What became of the trainings at one load.
#[derive(Clone, Debug, Default)]
struct Tally {
    ends: u32,
    completed: u64,
    /// Completed, and not recovered.
    lost: u64,
    /// Journals that cannot be read at all.
    unreadable: u32,
    /// Journals whose newest record was being written.
    in_mid_write: u32,
    /// What is wrong, by training.
    findings: Vec<String>,
}

/// Ends so many trainings, half of them at each load, and prints a table.
///
/// # Errors
/// A completed step was lost, a journal is unreadable, or the programs cannot be built or started.
pub fn run(root: &Path, kills: u32, directory: Option<&Path>) -> Result<()> {
    let libtorch = provision::variables(&provision::libtorch(root)?);
    process::build(root, &["--workspace", "--bins"], &libtorch)?;
    let programs = Programs { directory: workspace::cargo_target(root).join("debug"), libtorch };
    let place = tempfile::Builder::new();
    let place = directory.map_or_else(|| place.tempdir(), |directory| place.tempdir_in(directory));
    let place = place.context("cannot make a directory for the trainings")?;
    println!(
        "{:>14} {:>10} {:>16} {:>6} {:>11} {:>13} {:>8}",
        "busy processes", "trainings", "steps completed", "lost", "unreadable", "in mid-write", "time"
    );
    let mut findings = Vec::new();
    for (load, share) in LOADS.into_iter().zip([kills / 2, kills - kills / 2]) {
        let start = Instant::now();
        let tally = at_load(&programs, place.path(), load, share)?;
        let Tally { ends, completed, lost, unreadable, in_mid_write, findings: found } = tally;
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{load:>14} {ends:>10} {completed:>16} {lost:>6} {unreadable:>11} {in_mid_write:>13} {seconds:>6.0} s"
        );
        findings.extend(found);
    }
    for finding in &findings {
        println!("{finding}");
    }
    ensure!(findings.is_empty(), "{} trainings left less than they had completed", findings.len());
    Ok(())
}

/// Ends so many trainings while so many processes are busy; as many trainings at a time as there are processors, or as
/// busy processes where these are more: one that starts is as busy.
fn at_load(programs: &Programs, place: &Path, load: u32, trainings: u32) -> Result<Tally> {
    let _busy = (0..load).map(|_| busy()).collect::<Result<Vec<_>>>()?;
    let (next, tally) = (AtomicU32::new(0), Mutex::new(Tally::default()));
    let lane = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= trainings {
                return Ok(());
            }
            let scene = place.join(format!("{load}-{number}"));
            let remains = end_one(programs, &scene, number).with_context(|| format!("training {number}"))?;
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.add(&remains, &format!("training {number} at load {load}"));
            drop(tally);
            // What is of no interest any more takes no room.
            if remains.lost.is_empty() && !remains.is_unreadable {
                fs::remove_dir_all(&scene)?;
            }
        }
    };
    let lanes = thread::available_parallelism().map_or(1, usize::from).max(load as usize);
    thread::scope(|scope| -> Result<()> {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        let ended = lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| bail!("a thread panicked")));
        ended.collect()
    })?;
    Ok(tally.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Tally {
    fn add(&mut self, remains: &Remains, name: &str) {
        let Remains { completed, lost, is_unreadable, was_writing } = remains;
        self.ends += 1;
        self.completed += completed;
        self.lost += lost.len() as u64;
        self.unreadable += u32::from(*is_unreadable);
        self.in_mid_write += u32::from(*was_writing);
        if *is_unreadable {
            self.findings.push(format!("{name}: its journal cannot be read"));
        } else if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
            let count = lost.len();
            self.findings.push(format!("{name}: {count} of {completed} steps lost, {first} to {last}"));
        }
    }
}

/// What one training left.
#[derive(Debug)]
struct Remains {
    /// Steps that returned to the training.
    completed: u64,
    lost: BTreeSet<u64>,
    is_unreadable: bool,
    was_writing: bool,
}

struct Programs {
    directory: PathBuf,
    libtorch: Vec<(String, OsString)>,
}

impl Programs {
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.directory.join(name));
        process::with_environment(&mut command, &self.libtorch);
        command.stdin(Stdio::null());
        command
    }
}

/// Starts a training, ends it, and compares what it has completed with what is recovered.
fn end_one(programs: &Programs, scene: &Path, number: u32) -> Result<Remains> {
    fs::create_dir_all(scene)?;
    let config = scene.join("monitor.json");
    fs::write(&config, CONFIG)?;
    let dice = RandomState::new().hash_one(number);
    let mut command = programs.command("trainer");
    command.args(["--steps", &MOST_STEPS.to_string()]).arg("--config").arg(&config).arg("--out").arg(scene.join("out"));
    let leaves = number % LEAVES_EVERY == LEAVES_EVERY - 1;
    if leaves {
        command.args(["--leave-after", &(dice % LAST_STEPS).to_string()]);
    }
    let moment = LONGEST.mul_f64(dice as f64 / u64::MAX as f64);
    let completed = completed_by(command.stdout(Stdio::piped()).stderr(Stdio::null()), (!leaves).then_some(moment))?;
    let recovered = recover(programs, scene)?;
    Ok(Remains {
        completed,
        lost: (0..completed).filter(|step| !recovered.steps.contains(step)).collect(),
        is_unreadable: recovered.is_unreadable,
        was_writing: recovered.was_writing,
    })
}

/// Runs a training, kills it so long after its first step or lets it end, and counts the steps it said it had completed.
fn completed_by(command: &mut Command, kill_after: Option<Duration>) -> Result<u64> {
    let mut training = Process(running::spawn(command).context("cannot start the training")?);
    let pipe = training.0.stdout.take().context("no standard output")?;
    let (begin, begun) = sync_channel(1);
    // The pipe keeps what was written to it when its writer is gone.
    let reader = thread::Builder::new().name("steps".to_owned()).spawn(move || {
        let steps = BufReader::new(pipe).lines().map_while(Result::ok);
        let steps = steps.filter_map(|line| line.strip_prefix("step ")?.split(' ').next()?.parse::<u64>().ok());
        steps.inspect(|_| begin.try_send(()).unwrap_or_default()).last().map_or(0, |last| last + 1)
    })?;
    begun.recv().context("the training ended before its first step")?;
    if let Some(moment) = kill_after {
        thread::sleep(moment);
        training.0.kill().context("the training ended by itself")?;
    }
    training.0.wait()?;
    Ok(reader.join().unwrap_or_default())
}

/// What `trainmon recover` made of a journal.
#[derive(Debug)]
struct Recovered {
    steps: BTreeSet<u64>,
    is_unreadable: bool,
    was_writing: bool,
}

fn recover(programs: &Programs, scene: &Path) -> Result<Recovered> {
    let rescued = scene.join("rescued");
    let output = programs.command("trainmon").arg("recover").arg(scene.join("out")).arg("-o").arg(&rescued).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let mut steps = BTreeSet::new();
    for entry in fs::read_dir(&rescued).into_iter().flatten() {
        // A journal without a step has no file of steps.
        let text = fs::read_to_string(entry?.path().join("steps.csv")).unwrap_or_default();
        steps.extend(text.lines().filter_map(|line| line.split(',').next()?.parse::<u64>().ok()));
    }
    Ok(Recovered {
        steps,
        is_unreadable: !matches!(output.status.code(), Some(0 | 1)),
        was_writing: said.contains("it was being written"),
    })
}

/// Starts a process that does nothing but keep a processor busy.
fn busy() -> Result<Process> {
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
    Ok(Process(running::spawn(&mut command).context("cannot start a busy process")?))
}

/// No process outlives this one.
struct Process(Program);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
