//! A training whose every number follows from the step's. It runs in a process of its own: this test's program started
//! again, with a variable that says what to do.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use trainmon_agent::core::config::{Config, FileLayout};
use trainmon_agent::core::{Dtype, Kind, MicroStep, Record, Scalar, Shape, TensorId, TensorStats};
use trainmon_agent::{Monitor, Notices, Options, Ranks, StepFacts};

const DIRECTORY: &str = "TRAINMON_TEST_DIRECTORY";
const RECORDS: &str = "TRAINMON_TEST_RECORDS";
const FILES: &str = "TRAINMON_TEST_FILES";
const ABORT_AFTER: &str = "TRAINMON_TEST_ABORT_AFTER";
const LEAVE_AFTER: &str = "TRAINMON_TEST_LEAVE_AFTER";
const ANNOUNCED: &str = "TRAINMON_TEST_ANNOUNCED";
/// The word on stdout once the announced step is in every file; step 0 if none was asked for.
const READY: &str = "ready";
/// A child whose test went away ends by itself.
const MOST_STEPS: u64 = 50_000_000;
/// So many records may be on their way to a file: the training is not to drop any.
const MOST_UNDER_WAY: u64 = 20_000;

/// Steps of a fraction of a millisecond, and code that is not optimised: no limit to what appending may take of them.
const CONFIG: &str = r#"{
    "wg_distribution": true, "ops": ["norm", "min", "nans"], "format": ["csv", "journal"], "queue_steps": 4096,
    "journal": {"size_mb": 1, "flush_steps": 8, "in_step_budget": 100}, "alert": {"rules": []}
}"#;
/// Where a training notes how many steps it has completed, by itself: what is written to a file survives SIGKILL.
const COMPLETED: &str = "completed";

/// What a training writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// CSV files and the journal beside them.
    CsvAndJournal,
    /// The journal alone, as fast as it goes.
    Journal,
}

impl Files {
    const ALL: [(Self, &'static str); 2] = [(Self::CsvAndJournal, "csv"), (Self::Journal, "journal")];

    /// The directory of the files of a training below `base`.
    pub(crate) fn directory(self, base: &Path) -> Option<PathBuf> {
        match self {
            Self::CsvAndJournal => run_directory(base),
            Self::Journal => Some(base.to_path_buf()),
        }
    }
}

/// A small journal, everything into it.
pub(crate) fn config(files: Files) -> Config {
    let config = Config::parse(CONFIG, "test.json", &|_| None).unwrap().config;
    Config { csv: config.csv.filter(|_| files == Files::CsvAndJournal), ..config }
}

/// The only number a step has that no tensor has.
pub(crate) fn loss(step: u64) -> f64 {
    1.0 / (step as f64 + 1.0)
}

pub(crate) fn name(index: u32) -> String {
    format!("blocks.{index}.weight")
}

pub(crate) fn record(step: u64, index: u32) -> Record {
    let value = (step as f64 + 0.25) * f64::from(index + 1).sqrt();
    let shape = Shape::new(&[16, i64::from(index) + 1]).unwrap();
    let reading = TensorStats {
        min: Scalar::Float(-value / 3.0),
        norm: if step % 17 == 16 { f64::NAN } else { value },
        nans: step % 3,
        count: shape.elements() as u64,
        ..TensorStats::empty(Dtype::Bf16, shape)
    };
    Record { tensor: TensorId(index), kind: Kind::GradReduced, micro_step: MicroStep(0), reading: Some(reading.into()) }
}

/// In the process started by [`start`]: trains until it is ended from outside, or aborts itself. Elsewhere: returns.
pub(crate) fn train_if_asked() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let records = number(RECORDS).unwrap() as u32;
    let files = std::env::var(FILES).unwrap();
    let (files, _) = Files::ALL.into_iter().find(|(_, word)| *word == files).unwrap();
    let directory = Path::new(&directory);
    let completed = File::create_new(directory.with_extension(COMPLETED)).unwrap();
    let monitor = monitor(config(files), directory);
    for index in 0..records {
        monitor.register(&name(index), 0);
    }
    for step in 0..MOST_STEPS {
        end_one_step(&monitor, step, records);
        completed.write_all_at(&(step + 1).to_le_bytes(), 0).unwrap();
        if number(LEAVE_AFTER) == Some(step) {
            leave_at_once();
        }
        wait_for_files(&monitor, MOST_UNDER_WAY);
        if number(ANNOUNCED).unwrap_or_default() == step {
            wait_for_files(&monitor, 0);
            println!("{READY}");
            std::io::stdout().flush().unwrap();
        }
        if number(ABORT_AFTER) == Some(step) {
            std::process::abort();
        }
    }
    std::process::exit(0);
}

/// A monitor on one rank that writes below this directory and says nothing.
pub(crate) fn monitor(config: Config, directory: &Path) -> Monitor {
    let output_dir = Some(directory.to_path_buf());
    let layout = FileLayout::Msprobe;
    let options =
        Options { ranks: Some(Ranks::SINGLE), output_dir, layout, notices: Notices::new(|_| {}), ..Options::default() };
    Monitor::start(config, options).unwrap()
}

/// How many steps the training that writes below this directory has completed, by its own account.
pub(crate) fn completed_steps(directory: &Path) -> u64 {
    let bytes = std::fs::read(directory.with_extension(COMPLETED)).unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// What Python's `os._exit` does: no destructor runs, nobody is waited for.
#[expect(unsafe_code, reason = "the library has no safe word for it")]
fn leave_at_once() -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(0) }
}

/// One step, as fast as the slowest file takes it with so many records on their way.
pub(crate) fn step_once(monitor: &Monitor, step: u64, records: u32, most_under_way: u64) {
    end_one_step(monitor, step, records);
    wait_for_files(monitor, most_under_way);
}

fn end_one_step(monitor: &Monitor, step: u64, records: u32) {
    for index in 0..records {
        monitor.record(record(step, index), Duration::ZERO, 0);
    }
    monitor.end_step(StepFacts { loss: Some(loss(step)), ..StepFacts::default() });
}

fn wait_for_files(monitor: &Monitor, most_under_way: u64) {
    let under_way = || {
        let report = monitor.report();
        let slowest = report.sinks.iter().map(|sink| sink.counts.exported + sink.counts.failed).min();
        report.counts.offered - slowest.unwrap_or(report.counts.offered)
    };
    while under_way() > most_under_way {
        std::thread::yield_now();
    }
}

/// The process that trains.
pub(crate) struct Training(Child);

impl Training {
    /// Starts it; `test` is the calling test, which calls [`train_if_asked`] first.
    pub(crate) fn start(test: &str, directory: &Path, files: Files, records: u32) -> Self {
        Self::start_with(test, directory, files, records, &[])
    }

    /// Starts one that is [`ready`](Self::wait_until_ready) once this step is in every file.
    pub(crate) fn start_announcing(test: &str, directory: &Path, files: Files, records: u32, step: u64) -> Self {
        Self::start_with(test, directory, files, records, &[(ANNOUNCED, step)])
    }

    /// Starts one that aborts itself after this step.
    pub(crate) fn start_aborting(test: &str, directory: &Path, files: Files, records: u32, step: u64) -> Self {
        Self::start_with(test, directory, files, records, &[(ABORT_AFTER, step)])
    }

    /// Starts one that calls `_exit` right after this step.
    pub(crate) fn start_leaving(test: &str, directory: &Path, files: Files, records: u32, step: u64) -> Self {
        Self::start_with(test, directory, files, records, &[(LEAVE_AFTER, step)])
    }

    fn start_with(test: &str, directory: &Path, files: Files, records: u32, steps: &[(&str, u64)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let (_, word) = Files::ALL.into_iter().find(|(known, _)| *known == files).unwrap();
        command.env(DIRECTORY, directory).env(RECORDS, records.to_string()).env(FILES, word);
        command.envs(steps.iter().map(|(name, step)| (name, step.to_string())));
        Self(command.spawn().unwrap())
    }

    /// Waits until the announced step is in every file.
    pub(crate) fn wait_until_ready(&mut self) {
        let lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        // The test harness begins the line that says so.
        let is_ready = lines.map_while(Result::ok).any(|line| line.ends_with(READY));
        assert!(is_ready, "the training did not start");
    }

    /// Ends it with SIGKILL and waits for its end.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        let status = self.0.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "the training ended by itself: {status}");
    }

    /// Waits for its end and gives the signal that ended it, none if it left by itself.
    pub(crate) fn ended_by(mut self) -> Option<i32> {
        self.0.wait().unwrap().signal()
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        // A test that fails leaves no process behind.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The one run directory below this one.
pub(crate) fn run_directory(base: &Path) -> Option<PathBuf> {
    let mut directories = std::fs::read_dir(base).ok()?.map(|entry| entry.unwrap().path());
    let found = directories.next();
    assert_eq!(directories.next(), None);
    found
}
