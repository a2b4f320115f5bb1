//! A task that is interrupted leaves nothing running.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// A cargo that starts a process, notes both and waits. With `trap`, it does not hear some signals.
fn slow_cargo(place: &Path, trap: &str) -> Result<PathBuf> {
    let program = place.join("cargo");
    let script =
        format!("#!/bin/sh\n{trap}\nsleep 600 &\necho $$ $! >'pids.partial'\nmv 'pids.partial' 'pids'\nwait\nwait\n");
    fs::write(&program, script.replace("pids", &place.join("pids").display().to_string()))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

fn until<T>(mut found: impl FnMut() -> Option<T>, what: &str) -> Result<T> {
    let since = Instant::now();
    loop {
        if let Some(found) = found() {
            return Ok(found);
        }
        ensure!(since.elapsed() < Duration::from_mins(2), "not within two minutes: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a task that builds something, sends the signal to its process alone, and gives how it ended.
fn interrupted_by(signal: Signal, trap: &str) -> Result<ExitStatus> {
    let place = tempfile::tempdir()?;
    let mut task = Command::new(env!("CARGO_BIN_EXE_xtask"));
    task.args(["fuzz", "--seconds", "1", "npy"]).env("CARGO", slow_cargo(place.path(), trap)?);
    let mut task = task.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let pids = until(|| fs::read_to_string(place.path().join("pids")).ok(), "the build begins")?;
    let pids = pids.split_whitespace().map(|pid| Pid::from_raw(pid.parse()?).context("no process"));
    let pids = pids.collect::<Result<Vec<Pid>>>()?;
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|&pid| test_kill_process(pid).is_ok()), "both run");
    kill_process(Pid::from_raw(task.id().cast_signed()).context("no process")?, signal)?;
    let status = task.wait()?;
    for pid in pids {
        until(|| has_ended(pid).then_some(()), "what it had started ends")?;
    }
    Ok(status)
}

/// Gone, or dead and not yet waited for by whoever adopted it.
fn has_ended(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.map_or_else(|_| test_kill_process(pid).is_err(), |stat| stat.contains(") Z"))
}

#[test]
fn a_task_that_is_asked_to_end_takes_its_cargo_along() -> Result<()> {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        assert_eq!(interrupted_by(signal, "")?.signal(), Some(signal.as_raw()), "it ends as if nobody had listened");
    }
    Ok(())
}

#[test]
fn a_cargo_that_will_not_end_is_killed() -> Result<()> {
    let status = interrupted_by(Signal::TERM, "trap '' TERM")?;
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    Ok(())
}
