//! Starting other programs.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, PipeReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::running;

/// How often a silent program is reported as alive.
const HEARTBEAT: Duration = Duration::from_mins(1);
/// How long output is awaited after a program ended: a process it left behind may hold the pipe open for ever.
const GRACE: Duration = Duration::from_secs(5);
/// Lines in flight between the reader and the waiter.
const LINES_IN_FLIGHT: usize = 1024;

/// The cargo that runs this program, or the one on PATH.
pub fn cargo_path() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// A cargo to build with.
pub fn cargo() -> Command {
    let mut command = Command::new(cargo_path());
    command.envs(settings_of_one_build());
    command
}

/// Where a checkout is built once (`CI` is set) cargo keeps nothing for a next time, which would take as much of the disk as
/// all it builds, and nothing for a debugger, a third of what is built.
pub fn settings_of_one_build() -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_built_once = std::env::var_os("CI").is_some();
    let settings = [("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "none")];
    settings.into_iter().filter(move |(name, _)| is_built_once && std::env::var_os(name).is_none())
}

/// What a program prints on stdout; its stderr is dropped.
///
/// # Errors
/// It cannot be started or ends with a failure.
pub fn output(program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<String> {
    let program = program.as_ref();
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("{} ended with {}", program.display(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Rust's name of this machine's platform.
///
/// # Errors
/// There is no rustc, or it does not name it.
pub fn host_triple() -> Result<String> {
    let version = output("rustc", &["-vV"]).context("cannot ask rustc for its platform")?;
    let triple = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(triple.context("rustc -vV names no host")?.to_owned())
}

/// Whether a program is on PATH.
pub fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A command line for people.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let mut text: Vec<String> = words.map(|word| word.display().to_string()).collect();
    if command.get_program() == cargo_path() {
        "cargo".clone_into(&mut text[0]);
    }
    // What no shell can be given is shown as it is.
    shlex::try_join(text.iter().map(String::as_str)).unwrap_or_else(|_| text.join(" "))
}

/// Runs a program in the terminal, its output visible.
///
/// # Errors
/// It cannot be started or ends with a failure.
pub fn run_visibly(command: &mut Command) -> Result<()> {
    let line = shown(command);
    eprintln!("$ {line}");
    let mut program = running::spawn(command).with_context(|| format!("cannot start `{line}`"))?;
    let status = program.wait().with_context(|| format!("cannot wait for `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs `cargo build` with these arguments and variables, its output visible.
///
/// # Errors
/// It cannot be started or ends with a failure.
pub fn build(root: &Path, arguments: &[&str], variables: &[(String, OsString)]) -> Result<()> {
    let mut command = cargo();
    command.arg("build").args(arguments).current_dir(root);
    with_environment(&mut command, variables);
    run_visibly(&mut command)
}

/// What a captured program left behind.
#[derive(Clone, Debug)]
pub struct Captured {
    /// How it ended.
    pub status: ExitStatus,
    /// Its stdout and stderr, interleaved as written.
    pub text: String,
}

/// Runs a program without input, keeping its output; says once a minute that it lives.
///
/// # Errors
/// It cannot be started or waited for.
pub fn capture(command: Command) -> Result<Captured> {
    capture_with(command, GRACE)
}

fn capture_with(mut command: Command, grace: Duration) -> Result<Captured> {
    let line = shown(&command);
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = running::spawn(&mut command).with_context(|| format!("cannot start `{line}`"))?;
    // The command holds the pipe's write end: the reader would never see the end.
    drop(command);
    let lines = read_lines(reader)?;
    follow(&mut child, &lines, grace).with_context(|| format!("cannot wait for `{line}`"))
}

fn read_lines(reader: PipeReader) -> Result<Receiver<String>> {
    let (sender, receiver) = sync_channel(LINES_IN_FLIGHT);
    let read = move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
            line.clear();
        }
    };
    std::thread::Builder::new().name("output-reader".to_owned()).spawn(read)?;
    Ok(receiver)
}

fn follow(child: &mut Child, lines: &Receiver<String>, grace: Duration) -> Result<Captured> {
    let started = Instant::now();
    let mut text = String::new();
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut next_heartbeat = HEARTBEAT;
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => text.push_str(&line),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if ended.is_none() {
                    ended = child.try_wait()?.map(|status| (status, Instant::now()));
                }
                if ended.is_some_and(|(_, at)| at.elapsed() >= grace) {
                    break;
                }
            }
        }
        if started.elapsed() > next_heartbeat {
            let last = text.lines().next_back().unwrap_or_default().trim();
            eprintln!("  … {} s: {last}", started.elapsed().as_secs());
            next_heartbeat += HEARTBEAT;
        }
    }
    Ok(Captured { status: child.wait()?, text })
}

/// Adds variables to a command.
pub fn with_environment(command: &mut Command, variables: &[(String, OsString)]) {
    command.envs(variables.iter().map(|(name, value)| (name, value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_are_kept_in_order() {
        let captured = capture(shell("echo one; echo two >&2; echo three; exit 3")).unwrap();
        assert_eq!(captured.text, "one\ntwo\nthree\n");
        assert_eq!(captured.status.code(), Some(3));
    }

    #[test]
    fn a_process_left_behind_does_not_hold_up_the_end() {
        let captured = capture_with(shell("sleep 600 & echo $!; echo over"), Duration::ZERO).unwrap();
        let (pid, rest) = captured.text.split_once('\n').unwrap();
        assert_eq!(rest, "over\n");
        assert!(Command::new("kill").arg(pid).status().unwrap().success(), "the sleeper still lived");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = capture(Command::new("no-such-program-anywhere")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `no-such-program-anywhere`");
    }
}
