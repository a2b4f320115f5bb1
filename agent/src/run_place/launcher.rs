//! The start time of the launcher of this node's ranks, which all of them read without communication.

use std::fs;

use jiff::Timestamp;

/// The variables that differ between the processes of different ranks.
const OF_RANK: [&str; 5] = ["RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "SLURM_LOCALID"];
/// The ticks of `/proc/<pid>/stat` per second: 100 on every architecture that torch supports.
const TICKS_PER_SECOND: i64 = 100;
/// The maximum number of nested wrapper scripts between the launcher and a rank.
const MAX_WRAPPERS: usize = 16;

/// The start time of the process that launched this rank, in whole seconds; `None` if the system does not report it.
pub(super) fn started() -> Option<Timestamp> {
    let booted = boot_time()?;
    let mut process = Process::of(parent_of_this()?)?;
    for _ in 0..MAX_WRAPPERS {
        if !process.is_of_this_rank() {
            break;
        }
        // A wrapper script has the rank's variables and runs once per rank, so it is not the launcher.
        process = Process::of(process.parent)?;
    }
    Timestamp::from_second(booted.checked_add(process.start_ticks / TICKS_PER_SECOND)?).ok()
}

fn parent_of_this() -> Option<u32> {
    Some(Process::of(std::process::id())?.parent)
}

/// The boot time in Unix seconds.
fn boot_time() -> Option<i64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

struct Process {
    number: u32,
    parent: u32,
    /// The start time in ticks since the boot.
    start_ticks: i64,
}

impl Process {
    fn of(number: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // The second field is the program's name in parentheses; it may contain spaces and parentheses.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        // The parent is field 4, the start time field 22.
        let start_ticks = fields.nth(17)?.parse().ok()?;
        Some(Self { number, parent, start_ticks })
    }

    /// Whether it has the same rank variables as this process. False if they cannot be read: the process then belongs to
    /// another user, such as a cluster's daemon.
    fn is_of_this_rank(&self) -> bool {
        let Ok(environ) = fs::read(format!("/proc/{}/environ", self.number)) else { return false };
        let theirs = |name: &str| {
            let value = |entry: &[u8]| {
                let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
                Some(String::from_utf8_lossy(value).into_owned())
            };
            environ.split(|&byte| byte == 0).find_map(value)
        };
        let ours = OF_RANK.map(|name| (name, std::env::var(name).ok()));
        ours.iter().any(|(_, value)| value.is_some()) && ours.iter().all(|(name, value)| theirs(name) == *value)
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn the_parent_was_started_before_this_and_after_the_machine() {
        let now = Timestamp::now();
        let (Some(started), Some(booted)) = (started(), boot_time()) else { return };
        assert!(started <= now && started.as_second() >= booted, "{started}");
        let (own, parent) = (Process::of(std::process::id()).unwrap(), Process::of(parent_of_this().unwrap()).unwrap());
        assert!(parent.start_ticks <= own.start_ticks);
    }
}
