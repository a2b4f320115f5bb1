//! Programs that run for a task. Ctrl-C, or a signal to this process alone, ends them too, with all they started.
//!
//! Each program leads a process group of its own, so that a signal to the group reaches what it started.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long programs have for an orderly end before they are killed.
const GRACE: Duration = Duration::from_secs(10);
/// How often it is looked whether they are gone.
const PAUSE: Duration = Duration::from_millis(20);

static RUNNING: Mutex<Running> = Mutex::new(Running { groups: Vec::new(), is_interrupted: false });

struct Running {
    groups: Vec<Pid>,
    is_interrupted: bool,
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that is ended when this process is interrupted.
#[derive(Debug)]
pub struct Program(Child);

impl Deref for Program {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Program {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let own = group_of(&self.0);
        running().groups.retain(|&group| Some(group) != own);
    }
}

fn group_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id().cast_signed())
}

/// Starts a program. Once this process is interrupted it does not return: nothing more is to be started.
///
/// # Errors
/// The program cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Program> {
    // The lock is held meanwhile: a signal finds the program either listed or not yet started.
    let mut running = running();
    if running.is_interrupted {
        drop(running);
        wait_for_the_end();
    }
    let child = command.process_group(0).spawn()?;
    running.groups.extend(group_of(&child));
    Ok(Program(child))
}

/// From here on SIGINT, SIGTERM and SIGHUP are passed on to the programs; then this process ends by the same signal.
///
/// # Errors
/// The system has no room for a handler or a thread.
pub fn end_programs_on_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let serve = move || {
        if let Some(signal) = signals.forever().next() {
            end(signal);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(serve).map(drop)
}

/// To be called when all is done: where a signal came meanwhile it is that which ends this process.
pub fn wait_for_an_interruption() {
    let is_interrupted = running().is_interrupted;
    if is_interrupted {
        wait_for_the_end();
    }
}

fn wait_for_the_end() -> ! {
    loop {
        thread::park();
    }
}

fn end(signal: i32) {
    let groups = {
        let mut running = running();
        running.is_interrupted = true;
        running.groups.clone()
    };
    let passed_on = match signal {
        SIGHUP => Signal::HUP,
        SIGINT => Signal::INT,
        _ => Signal::TERM,
    };
    // One that has ended meanwhile refuses, which is as well.
    let send = |signal| groups.iter().for_each(|&group| kill_process_group(group, signal).unwrap_or_default());
    send(passed_on);
    let since = Instant::now();
    while since.elapsed() < GRACE && groups.iter().any(|&group| test_kill_process_group(group).is_ok()) {
        thread::sleep(PAUSE);
    }
    send(Signal::KILL);
    // It ends this process as if nobody had listened. What refuses is not to keep it alive.
    drop(signal_hook::low_level::emulate_default_handler(signal));
    std::process::abort();
}
