//! A long run with every exporter, its receiver coming and going: does anything grow?
//!
//! The program `trainer` trains as fast as it can. From outside its process is looked at (`sample`), its page is fetched,
//! and its receiver is up, down or hanging (`endpoint`). The samples are judged in the end (`verdict`).

mod endpoint;
mod sample;
mod verdict;

use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use self::endpoint::Endpoint;
use crate::http::get;

pub use self::endpoint::Served;
pub use self::sample::Sample;
pub use self::verdict::{Tenth, Tenths};

/// A page is asked for once in so many samples.
const SAMPLES_PER_PAGE: usize = 5;
/// Told to the trainer's monitor, whose page is then found through its target file.
const TARGETS: &str = "targets.json";
const TARGETS_OF_RANK_0: &str = "targets.rank0.json";

/// How long the receiver is up, then down, then hanging, in turn.
#[derive(Clone, Copy, Debug)]
pub struct Flaps {
    /// Takes every request.
    pub up: Duration,
    /// Closes every connection.
    pub down: Duration,
    /// Reads requests and answers none.
    pub hanging: Duration,
}

/// A soak.
#[derive(Clone, Debug)]
pub struct Soak {
    /// The program `trainer`.
    pub trainer: PathBuf,
    /// Steps to make.
    pub steps: u64,
    /// How often the process is looked at.
    pub every: Duration,
    /// The receiver's ways.
    pub flaps: Flaps,
}

/// What a soak came to.
#[derive(Clone, Debug)]
pub struct Soaked {
    /// The tenths of the run.
    pub tenths: Tenths,
    /// What the receiver saw.
    pub served: Served,
    /// Pages fetched while the training ran.
    pub pages: usize,
    /// From the first step to the last.
    pub took: Duration,
    /// What the training said after its last step: the monitor's account.
    pub account: Vec<String>,
}

impl Soak {
    /// Runs it, with its files in `directory`.
    ///
    /// # Errors
    /// The training fails, loses count of its records, or its page does not answer while it runs.
    pub fn run(&self, directory: &Path) -> Result<Soaked> {
        let endpoint = Endpoint::start(self.flaps)?;
        let config = directory.join("soak.json");
        std::fs::write(&config, config_text(directory, endpoint.address, self.flaps))?;
        let mut training = Training::start(self, &config, &directory.join("out"))?;
        let (mut samples, mut pages) = (Vec::new(), 0);
        let (mut began, mut took) = (None, Duration::ZERO);
        while let Some(sample) = Sample::take(training.child.id(), training.announced())? {
            if training.child.try_wait()?.is_some() {
                break;
            }
            if sample.steps > 0 && took.is_zero() {
                let began = *began.get_or_insert_with(Instant::now);
                if sample.steps == self.steps {
                    took = began.elapsed();
                    endpoint.calm();
                } else if samples.len() % SAMPLES_PER_PAGE == 0 {
                    fetch_page(&directory.join(TARGETS_OF_RANK_0), &mut training, self.steps)?;
                    pages += 1;
                }
            }
            samples.push(sample);
            std::thread::sleep(self.every);
        }
        let account = training.end()?;
        Ok(Soaked { tenths: Tenths::of(&samples, self.steps), served: endpoint.served(), pages, took, account })
    }
}

impl fmt::Display for Soaked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenths, served, pages, took, account } = self;
        for line in account.iter().filter(|line| line.starts_with("counts ") || line.starts_with("sink ")) {
            writeln!(f, "{line}")?;
        }
        let Served { taken, refused, unanswered } = served;
        writeln!(f, "receiver: {taken} requests taken, {unanswered} never answered, {refused} connections refused")?;
        writeln!(f, "{pages} pages fetched; {:.0} s from the first step to the last", took.as_secs_f64())?;
        writeln!(f, "{tenths}")
    }
}

/// Everything that leaves the process, all alerts, and a receiver's room so small that outages fill it.
fn config_text(directory: &Path, receiver: SocketAddr, flaps: Flaps) -> String {
    let targets = directory.join(TARGETS);
    let timeout_ms = flaps.hanging.as_millis() / 2;
    serde_json::json!({
        "ops": ["norm", "mean", "nans"],
        "wg_distribution": true, "mv_distribution": true, "update": true, "xy_distribution": true, "all_xy": true,
        "format": ["csv", "prometheus", "otlp", "tensorboard"],
        "step_count_per_record": 1000,
        "queue_steps": 64,
        "journal": {"size_mb": 8},
        "prometheus": {"port": 0, "target_file": targets, "per_parameter": true},
        "otlp": {"endpoint": format!("http://{receiver}"), "timeout_ms": timeout_ms.max(1), "backlog_mb": 2,
                 "per_parameter": true},
        "alert": {
            "rules": [
                {"rule_name": "Spike", "args": {"threshold": 3}, "on": {"scope": "layer", "signal": ["grad"]},
                 "actions": ["log", "webhook"]},
                {"rule_name": "Dead"}, {"rule_name": "NonFinite"}, {"rule_name": "Drift"}, {"rule_name": "UpdateRatio"},
                {"rule_name": "AnomalyTurbulence", "actions": []}
            ],
            "webhook": {"url": format!("http://{receiver}/hook")}
        }
    })
    .to_string()
}

/// Fetches the page of a training that must still be at it.
fn fetch_page(targets: &Path, training: &mut Training, steps: u64) -> Result<()> {
    let text = std::fs::read_to_string(targets).with_context(|| format!("cannot read {}", targets.display()));
    let page = text.and_then(|text| {
        let targets: serde_json::Value = serde_json::from_str(&text)?;
        get(targets[0]["targets"][0].as_str().context("no target")?.parse()?, "/metrics")
    });
    // A training that has come to its end takes its page away.
    if training.announced() < steps && training.child.try_wait()?.is_none() {
        let page = page.context("the scrape page")?;
        ensure!(page.contains("trainmon_steps_total"), "a page without the steps' counter");
    }
    Ok(())
}

/// The trainer in progress; killed when dropped.
struct Training {
    child: Child,
    announced: Arc<AtomicU64>,
    stdout: Option<JoinHandle<Vec<String>>>,
    stderr: Option<JoinHandle<String>>,
}

impl Training {
    fn start(soak: &Soak, config: &Path, out: &Path) -> Result<Self> {
        let mut command = Command::new(&soak.trainer);
        command.args(["--steps", &soak.steps.to_string(), "--config"]).arg(config).arg("--out").arg(out);
        command.env_remove("OTEL_SDK_DISABLED");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", soak.trainer.display()))?;
        let announced = Arc::new(AtomicU64::new(0));
        let (out, mut err) = (child.stdout.take(), child.stderr.take());
        let out = out.context("no standard output")?;
        let count = Arc::clone(&announced);
        let listen = std::thread::Builder::new().name("stdout-reader".to_owned());
        let stdout = listen.spawn(move || listen_to_steps(out, &count))?;
        let stderr = std::thread::Builder::new().name("stderr-reader".to_owned()).spawn(move || {
            let mut text = String::new();
            // What is no text ends it; a soak is judged by other things.
            drop(err.as_mut().map(|err| err.read_to_string(&mut text)));
            text
        })?;
        Ok(Self { child, announced, stdout: Some(stdout), stderr: Some(stderr) })
    }

    /// How many steps are over.
    fn announced(&self) -> u64 {
        self.announced.load(Ordering::Relaxed)
    }

    /// Waits for its end; what it said after the last step.
    fn end(mut self) -> Result<Vec<String>> {
        let status = self.child.wait()?;
        let said = self.stderr.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        let account = self.stdout.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        ensure!(status.success(), "the training ended with {status}: {said}");
        let balances = account.iter().any(|line| line == "report balances true");
        ensure!(balances, "the counts do not balance: {account:#?}");
        Ok(account)
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        drop(self.child.wait());
    }
}

/// Counts the announced steps; gives back what else was said.
fn listen_to_steps(out: ChildStdout, announced: &AtomicU64) -> Vec<String> {
    let mut others = Vec::new();
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        match line.strip_prefix("step ").and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok()) {
            Some(step) => announced.store(step + 1, Ordering::Relaxed),
            None => others.push(line),
        }
    }
    others
}
