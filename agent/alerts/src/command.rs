//! The notifier that runs a program for each alert, on its own thread.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use trainmon_core::config::Command;

use super::delivery::{Failed, Notifier, Payload};

/// The interval between two checks of a running program.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs a program for each alert.
pub(crate) struct CommandNotifier {
    command: Command,
    running: Arc<Running>,
    /// When the monitor stops waiting; `None` until it closes.
    closes: Option<Instant>,
}

/// The running program, for the thread that stops it.
#[derive(Debug, Default)]
struct Running(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Its process group until it has been waited for. Until then, no other process can have this number.
    group: Option<Pid>,
    given_up: bool,
}

impl Running {
    /// Kills the program with all its child processes, and prevents later ones.
    fn give_up(&self) {
        let mut state = self.0.lock();
        state.given_up = true;
        kill(state.group);
    }
}

/// Kills a process group that has not been waited for. Does nothing if it has already ended.
fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        kill_process_group(group, Signal::KILL).unwrap_or_default();
    }
}

impl CommandNotifier {
    pub(crate) fn new(command: Command) -> Self {
        Self { command, running: Arc::default(), closes: None }
    }

    fn start(&self, payload: &Payload) -> std::io::Result<Child> {
        let (program, arguments) = self.command.run.split_first().map_or(("", &[][..]), |(p, a)| (p.as_str(), a));
        let mut child = std::process::Command::new(program)
            .args(arguments)
            // A variable cannot contain a NUL, which a name may; the system would refuse to start the program.
            .envs(payload.environment.iter().map(|(name, value)| (name, value.replace('\0', "\u{2400}"))))
            .stdin(Stdio::piped())
            // Standard output is discarded; standard error is shown.
            .stdout(Stdio::null())
            // Its own process group, so that its child processes are killed with it.
            .process_group(0)
            .spawn()?;
        let mut state = self.running.0.lock();
        state.group = Pid::from_raw(child.id().cast_signed());
        if state.given_up {
            kill(state.group);
        }
        drop(state);
        if let Some(mut stdin) = child.stdin.take() {
            // An alert fits into the pipe, so this does not block. A program that does not read its input has closed
            // the pipe.
            drop(stdin.write_all(payload.json.as_bytes()));
        }
        Ok(child)
    }

    /// Waits for the program's end until the deadline, or an earlier one received from `closing`. `None` if it was
    /// killed.
    fn wait(
        &mut self,
        child: &mut Child,
        deadline: Instant,
        closing: &Receiver<Instant>,
    ) -> std::io::Result<Option<ExitStatus>> {
        let mut is_killed = false;
        loop {
            let mut state = self.running.0.lock();
            let ended = child.try_wait();
            is_killed |= state.given_up;
            if !matches!(ended, Ok(None)) {
                state.group = None;
                return ended.map(|status| status.filter(|status| !is_killed || status.success()));
            }
            if Instant::now() >= self.closes.map_or(deadline, |closes| deadline.min(closes)) {
                is_killed = true;
                kill(state.group);
            }
            drop(state);
            match closing.recv_timeout(LOOK_EVERY) {
                Ok(closes) => self.closes = Some(closes),
                Err(RecvTimeoutError::Timeout) => {}
                // The deadline was already received.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}

impl Notifier for CommandNotifier {
    type Message = Arc<Payload>;

    fn deliver(&mut self, payload: &Arc<Payload>, closing: &Receiver<Instant>) -> Result<(), Failed> {
        let program = self.command.run.first().cloned().unwrap_or_default();
        let failed = |what: String, hint| Failed { what: format!("`{program}`: {what}"), hint };
        let cannot_run =
            |error: std::io::Error| failed(error.to_string(), "check that `alert.command.run` names a program on PATH");
        self.closes = self.closes.or_else(|| closing.try_recv().ok());
        if self.closes.is_some_and(|closes| closes <= Instant::now()) {
            return Err(failed("not started, because the shutdown deadline has passed".to_owned(), ""));
        }
        let mut child = self.start(payload).map_err(cannot_run)?;
        let deadline = Instant::now() + Duration::from_millis(self.command.timeout_ms);
        match self.wait(&mut child, deadline, closing).map_err(cannot_run)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                Err(failed(status.to_string(), "run the program by hand with an alert's JSON on standard input"))
            }
            None => Err(failed("killed after its time limit".to_owned(), "raise `alert.command.timeout_ms`")),
        }
    }

    fn emergency_stop(&self) -> Box<dyn FnOnce() + Send> {
        let running = Arc::clone(&self.running);
        Box::new(move || running.give_up())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_in_a_name_does_not_keep_the_program_from_being_started() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("said");
        let script = r#"printf '%s|' "$TRAINMON_ALERT_SERIES" > "$0"; cat >> "$0""#;
        let run = ["sh", "-c", script, file.to_str().unwrap()].map(str::to_owned).to_vec();
        let mut notifier = CommandNotifier::new(Command { run, timeout_ms: 60_000 });
        let environment = vec![("TRAINMON_ALERT_SERIES", "layer\0.weight".to_owned())];
        let payload = Arc::new(Payload { json: r#"{"series": "layer\u0000.weight"}"#.to_owned(), environment });
        let (_close, closing) = crossbeam_channel::bounded(1);
        assert!(notifier.deliver(&payload, &closing).is_ok());
        let said = std::fs::read_to_string(&file).unwrap();
        assert_eq!(said, "layer\u{2400}.weight|{\"series\": \"layer\\u0000.weight\"}");
    }
}
