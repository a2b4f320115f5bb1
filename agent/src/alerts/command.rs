//! A program for each alert, on a thread of its own.

use std::io::Write as _;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use trainmon_core::config::Command;

use super::delivery::{Carrier, Failed, Letter};

/// How often a running program is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs a program.
pub(crate) struct Runner {
    command: Command,
}

impl Runner {
    pub(crate) fn new(command: Command) -> Self {
        Self { command }
    }

    fn start(&self, letter: &Letter) -> std::io::Result<Child> {
        let (program, arguments) = self.command.run.split_first().map_or(("", &[][..]), |(p, a)| (p.as_str(), a));
        let mut child = std::process::Command::new(program)
            .args(arguments)
            .envs(letter.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            // What it prints belongs to it; what it complains about is shown.
            .stdout(Stdio::null())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // An alert fits the pipe, so this does not wait; a program that does not read has closed it.
            drop(stdin.write_all(letter.json.as_bytes()));
        }
        Ok(child)
    }

    fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Carrier for Runner {
    fn carry(&mut self, letter: &Letter, closing: &Receiver<Instant>) -> Result<(), Failed> {
        let program = self.command.run.first().map_or("", String::as_str);
        let failed = |what: String, hint| Failed { what: format!("`{program}`: {what}"), hint };
        let cannot_run = |error: std::io::Error| failed(error.to_string(), "is `alert.command.run` a program on PATH?");
        let mut child = self.start(letter).map_err(cannot_run)?;
        let mut deadline = Instant::now() + Duration::from_millis(self.command.timeout_ms);
        // A monitor that closes does not wait longer than its own deadline.
        deadline = closing.try_recv().map_or(deadline, |closes| deadline.min(closes));
        match Self::wait(&mut child, deadline).map_err(cannot_run)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(failed(status.to_string(), "run it by hand with the alert's JSON on standard input")),
            None => Err(failed("killed at its deadline".to_owned(), "raise `alert.command.timeout_ms`")),
        }
    }
}
