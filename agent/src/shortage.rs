//! Checks whether the machine has the threads and the memory that a monitor requires.

use std::io;

use trainmon_service::Notices;

use crate::worker::WorkerThread;

/// The suggested fix if a thread cannot be started.
pub(crate) const THREADS_HINT: &str =
    "check `ulimit -u -v` and the limits of the container: the machine lacks threads or memory for them";

/// The free address space that the threads' stacks and first allocations require. With less, the training could run out of
/// memory, and a failed allocation ends the process.
const LEAST_FREE: u64 = 48 << 20;

/// Starts the worker's thread, or returns the reason why it cannot.
pub(crate) fn worker_thread() -> Result<WorkerThread, String> {
    if let Some(free) = address_space_left().filter(|free| *free < LEAST_FREE) {
        let [free, least] = [free, LEAST_FREE].map(|bytes| bytes >> 20);
        return Err(format!("{free} MiB of address space are free, and trainmon requires {least} MiB"));
    }
    WorkerThread::start().map_err(|error: io::Error| format!("cannot start a thread ({error})"))
}

/// The address space that `ulimit -v` leaves free; `None` without a limit, or if the system does not report it.
fn address_space_left() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let used = pages.split(' ').next()?.parse::<u64>().ok()?.checked_mul(rustix::param::page_size() as u64)?;
    Some(limit.saturating_sub(used))
}

/// The outputs whose threads could not be started, with the errors.
#[derive(Default)]
pub(crate) struct Threadless(Vec<(&'static str, io::Error)>);

impl Threadless {
    /// Returns what was started, or remembers the error.
    pub(crate) fn keep<T>(&mut self, what: &'static str, made: Result<T, io::Error>) -> Option<T> {
        made.map_err(|error| self.0.push((what, error))).ok()
    }

    /// Warns once of all these outputs.
    pub(crate) fn tell(&self, notices: &Notices) {
        let Some((_, error)) = self.0.first() else { return };
        let names: Vec<_> = self.0.iter().map(|(name, _)| *name).collect();
        let message =
            format!("{}: cannot start a thread ({error}): no output there; all else continues", names.join(", "));
        notices.warn(message, Some(THREADS_HINT.to_owned()));
    }
}
