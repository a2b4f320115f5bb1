//! What a monitor needs of the machine before it starts anything: threads, and memory for them.

use std::io;

use trainmon_service::Notices;

use crate::worker::WorkerThread;

/// What to do where a thread cannot be started.
pub(crate) const THREADS_HINT: &str =
    "the machine is out of threads or memory for them: see `ulimit -u -v` and the limits of its container";

/// So much of the address space must be free: the stacks of the threads and their first allocations. Where there is less,
/// they take what the training needs for its own, and an allocation that fails ends the process.
const LEAST_FREE: u64 = 48 << 20;

/// The worker's thread, before all others; or why there is none, in words.
pub(crate) fn worker_thread() -> Result<WorkerThread, String> {
    if let Some(free) = address_space_left().filter(|free| *free < LEAST_FREE) {
        let [free, least] = [free, LEAST_FREE].map(|bytes| bytes >> 20);
        return Err(format!("{free} MiB of address space are left, {least} are needed"));
    }
    WorkerThread::start().map_err(|error: io::Error| format!("no thread can be started ({error})"))
}

/// What `ulimit -v` leaves of the address space; `None` without a limit, or where the system does not tell.
fn address_space_left() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let used = pages.split(' ').next()?.parse::<u64>().ok()?.checked_mul(rustix::param::page_size() as u64)?;
    Some(limit.saturating_sub(used))
}

/// Outputs for which there was no thread, and why.
#[derive(Default)]
pub(crate) struct Threadless(Vec<(&'static str, io::Error)>);

impl Threadless {
    /// What has its thread.
    pub(crate) fn keep<T>(&mut self, what: &'static str, made: Result<T, io::Error>) -> Option<T> {
        made.map_err(|error| self.0.push((what, error))).ok()
    }

    /// One warning, however many there are.
    pub(crate) fn tell(&self, notices: &Notices) {
        let Some((_, error)) = self.0.first() else { return };
        let names: Vec<_> = self.0.iter().map(|(name, _)| *name).collect();
        let message = format!(
            "{}: no thread can be started ({error}): nothing is written there, the rest goes on",
            names.join(", ")
        );
        notices.warn(message, Some(THREADS_HINT.to_owned()));
    }
}
