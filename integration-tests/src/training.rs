//! The program `trainer` in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, ensure};

use crate::wait::wait_for;

/// Variables that would tell the trainer of a launcher or an output directory around the tests.
const FOREIGN_VARIABLES: [&str; 16] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "MONITOR_OUTPUT_DIR",
    "DYNAMIC_MONITOR",
    "TRAINMON_RUN_NAME",
    "TRAINMON_RUN",
    "TORCHELASTIC_RUN_ID",
    "SLURM_JOB_ID",
    "OTEL_SDK_DISABLED",
];

/// How a training is to be started. `--help` of the program says what each option means.
pub struct Trainer {
    command: Command,
}

impl Trainer {
    /// A training of this many steps by the program at `program`, without a monitor.
    pub fn unwatched(program: &str, steps: u64) -> Self {
        let mut command = Command::new(program);
        command.args(["--no-monitor", "--steps", &steps.to_string()]);
        Self::prepared(command)
    }

    /// A training of this many steps, watched as the config file says.
    pub fn watched(program: &str, steps: u64, config: &Path) -> Self {
        let mut command = Command::new(program);
        command.args(["--steps", &steps.to_string(), "--config"]).arg(config);
        Self::prepared(command)
    }

    fn prepared(mut command: Command) -> Self {
        for variable in FOREIGN_VARIABLES {
            command.env_remove(variable);
        }
        Self { command }
    }

    /// Adds an option.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(name).arg(value);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it in this directory.
    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(mut self) -> Result<Training> {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().with_context(|| format!("cannot start {:?}", self.command))?;
        let stdout = CollectedLines::listen(child.stdout.take().context("no standard output")?)?;
        let stderr = CollectedLines::listen(child.stderr.take().context("no standard error")?)?;
        Ok(Training { process: Process(child), stdout, stderr })
    }

    /// Starts it and waits for its end.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`Training::end`].
    pub fn run(self) -> Result<Ended> {
        self.start()?.end()
    }
}

/// A training in progress; killed when dropped.
pub struct Training {
    process: Process,
    stdout: CollectedLines,
    stderr: CollectedLines,
}

impl Training {
    /// Waits until the training has announced the end of this step.
    ///
    /// # Errors
    /// The training ended before, or takes too long.
    pub fn wait_for_step(&mut self, step: u64) -> Result<()> {
        let announcement = format!("step {step} ");
        wait_for(&format!("step {step}"), || {
            let ended = self.process.0.try_wait()?;
            let announced = self.stdout.lines().iter().any(|line| line.starts_with(&announcement));
            ensure!(announced || ended.is_none(), "the training ended: {}", self.stderr.text());
            Ok(announced.then_some(()))
        })
    }

    /// Waits until the monitor has said something with these words.
    ///
    /// # Errors
    /// It takes too long.
    pub fn wait_for_notice(&self, words: &str) -> Result<()> {
        wait_for(&format!("notice {words:?}"), || Ok(self.stderr.text().contains(words).then_some(())))
    }

    /// Lets a training that pauses (`--pause-after`) go on.
    ///
    /// # Errors
    /// It is gone.
    pub fn resume(&mut self) -> Result<()> {
        Ok(self.process.0.stdin.as_mut().context("no standard input")?.write_all(b"\n")?)
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// It had ended before.
    pub fn kill(mut self) -> Result<Ended> {
        ensure!(self.process.0.try_wait()?.is_none(), "the training ended before it was killed");
        self.process.0.kill()?;
        self.end()
    }

    /// Waits for its end; it pauses no more.
    ///
    /// # Errors
    /// It takes too long.
    pub fn end(mut self) -> Result<Ended> {
        drop(self.process.0.stdin.take());
        let status = wait_for("end of the training", || Ok(self.process.0.try_wait()?))?;
        Ok(Ended { status, stdout: self.stdout.finish(), stderr: self.stderr.finish().join("\n") })
    }
}

/// No process outlives its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        drop(self.0.wait());
    }
}

/// What a finished training left.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output, complete lines.
    pub stdout: Vec<String>,
    /// Its standard error: the monitor's notices.
    pub stderr: String,
}

impl Ended {
    /// The last step it announced.
    ///
    /// # Errors
    /// None was.
    pub fn last_step(&self) -> Result<u64> {
        let last = self.stdout.iter().rev().find_map(|line| line.strip_prefix("step ")?.split(' ').next());
        Ok(last.context("no step was announced")?.parse()?)
    }

    /// The rest of the first line that begins with `beginning`: `parameters`, `final loss`, `report balances`.
    ///
    /// # Errors
    /// There is no such line.
    pub fn line(&self, beginning: &str) -> Result<&str> {
        let mut rests = self.stdout.iter().filter_map(|line| line.strip_prefix(beginning));
        let rest = rests.find_map(|rest| rest.strip_prefix(' '));
        rest.with_context(|| format!("no line {beginning:?} in {:#?}\n{}", self.stdout, self.stderr))
    }

    /// One figure of the closing account: `("counts", "observed")`, `("sink csv", "failed")`.
    ///
    /// # Errors
    /// The account has no such figure.
    pub fn figure(&self, line: &str, name: &str) -> Result<u64> {
        let mut figures = self.line(line)?.split(' ').filter_map(|figure| figure.split_once('='));
        let figure = figures.find(|(known, _)| *known == name);
        Ok(figure.with_context(|| format!("no {name:?} in line {line:?}"))?.1.parse()?)
    }

    /// How often the monitor said these words.
    pub fn notices(&self, words: &str) -> usize {
        self.stderr.matches(words).count()
    }
}

/// The lines of a pipe, collected as they come.
struct CollectedLines {
    lines: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

impl CollectedLines {
    fn listen(pipe: impl Read + Send + 'static) -> Result<Self> {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&lines);
        let reader = std::thread::Builder::new().name("pipe-reader".to_owned()).spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        })?;
        Ok(Self { lines, reader })
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// Everything that was said; to be asked once the process has ended.
    fn finish(self) -> Vec<String> {
        drop(self.reader.join());
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
