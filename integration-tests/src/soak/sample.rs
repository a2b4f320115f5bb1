//! What a process takes of the machine, as Linux tells it.

use anyhow::{Context as _, Result};

/// One look at the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Steps that were announced until then.
    pub steps: u64,
    /// Resident memory.
    pub resident_kib: u64,
    /// Threads.
    pub threads: u64,
    /// Open file descriptors.
    pub descriptors: u64,
}

impl Sample {
    /// Looks at a process; `None` once it is gone.
    ///
    /// # Errors
    /// `/proc` does not say what it should.
    pub(super) fn take(process: u32, steps: u64) -> Result<Option<Self>> {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/status")) else { return Ok(None) };
        let Ok(descriptors) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return Ok(None) };
        let descriptors = descriptors.count() as u64;
        let figure = |name: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(name));
            rest.map(|rest| rest.trim_start_matches(':').trim().trim_end_matches(" kB").parse()).transpose()
        };
        // A process that has ended and was not waited for has no memory.
        let Some(resident_kib) = figure("VmRSS")? else { return Ok(None) };
        let threads = figure("Threads")?.context("no `Threads` in /proc")?;
        Ok(Some(Self { steps, resident_kib, threads, descriptors }))
    }
}
