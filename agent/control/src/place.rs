//! The control directory: its location, its owner, and the file with its addresses.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use trainmon_core::RunInfo;
use trainmon_core::config::Config;
use trainmon_service::environment;

/// The file from which `trainmon ctl` reads the addresses.
const DESCRIPTION: &str = "control.json";
/// The variable of torchrun and Megatron that distinguishes jobs on one host.
const MASTER_PORT: &str = "MASTER_PORT";
/// The variables with a job number that all ranks share: Slurm, PBS, LSF, Open MPI.
const JOB_NUMBERS: [&str; 4] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OMPI_MCA_ess_base_jobid"];

/// The control directory of a run, not created yet. A run of one process uses its run directory; several ranks use one
/// whose name all of them can derive.
pub(super) fn directory(config: &Config, base: &Path, run: &str, own: Option<&Path>, is_single: bool) -> PathBuf {
    if let Some(directory) = config.control.as_ref().and_then(|control| control.directory.as_ref()) {
        return directory.clone();
    }
    if let Some(own) = own {
        return own.to_path_buf();
    }
    // Two jobs without a run name must not share a directory.
    let apart = match (is_single, environment::variable(MASTER_PORT)) {
        (true, _) => format!("-{}", std::process::id()),
        (_, port) => {
            let job = JOB_NUMBERS.iter().find_map(|name| environment::variable(name));
            // An unnamed run may have the job number as its name.
            let job = job.filter(|job| run != job);
            port.into_iter().chain(job).fold(String::new(), |all, one| format!("{all}-{}", as_word(&one)))
        }
    };
    base.join(format!("control-{}{apart}", as_word(run)))
}

/// A reservation among the monitors of this process with the same control directory (a training with two optimizers has
/// two). From the second on, each has its own directory. Every rank starts them in the same order, so the n-th monitors
/// of all ranks share one.
#[derive(Debug)]
pub(super) struct DirectoryPlace {
    directory: PathBuf,
    rank: u32,
    place: u32,
}

static TAKEN_PLACES: Mutex<BTreeSet<(PathBuf, u32, u32)>> = Mutex::new(BTreeSet::new());

impl DirectoryPlace {
    /// Reserves the first free one.
    pub(super) fn take(directory: PathBuf, rank: u32) -> Self {
        let mut taken = TAKEN_PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (1..=u32::MAX).find(|place| taken.insert((directory.clone(), rank, *place))).unwrap_or(1);
        Self { directory, rank, place }
    }

    /// The directory of this reservation.
    pub(super) fn directory(&self) -> PathBuf {
        if self.place == 1 {
            return self.directory.clone();
        }
        let mut name = self.directory.clone().into_os_string();
        name.push(format!("-{}", self.place));
        name.into()
    }
}

impl Drop for DirectoryPlace {
    fn drop(&mut self) {
        let mut taken = TAKEN_PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&(std::mem::take(&mut self.directory), self.rank, self.place));
    }
}

/// Replaces characters other than letters, digits, dashes and dots, so that the text is one path component.
fn as_word(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    text.chars().map(letter).collect()
}

/// Rank 0's lock on a control directory, held until the process ends.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    lock: File,
    owner: u32,
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // A forked child also holds the lock and may live longer, so the lock is released for both. The child releases
        // nothing.
        if self.owner == std::process::id() {
            self.lock.unlock().unwrap_or_default();
        }
    }
}

/// The control directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum DirectoryError {
    /// The directory cannot be created or locked.
    #[error("cannot use the control directory `{}`", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Another run uses the directory.
    #[error("another run uses the control directory `{}`", path.display())]
    Taken { path: PathBuf },
}

impl DirectoryLock {
    /// Creates the directory and locks it for this run.
    pub(super) fn take(directory: &Path) -> Result<Self, DirectoryError> {
        let failed = |source| DirectoryError::Io { path: directory.to_path_buf(), source };
        fs::create_dir_all(directory).map_err(failed)?;
        let lock = File::create(directory.join(".control.lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { lock, owner: std::process::id() }),
            Err(TryLockError::WouldBlock) => Err(DirectoryError::Taken { path: directory.to_path_buf() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

/// The addresses of the server.
pub(super) struct Addresses<'a> {
    pub(super) socket: Option<&'a Path>,
    pub(super) address: Option<SocketAddr>,
    pub(super) token_file: &'a Path,
}

/// Writes the description file into the control directory, and next to the run's files if that is another directory.
pub(super) fn describe(places: &[&Path], addresses: &Addresses<'_>, run: &RunInfo) -> io::Result<Vec<PathBuf>> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let text = json!({
        "socket": addresses.socket.map(absolute),
        "url": addresses.address.map(|address| format!("http://{address}")),
        "token_file": absolute(addresses.token_file),
        "run": run.run,
        "world_size": run.world_size,
        "pid": std::process::id(),
    });
    let text = serde_json::to_string_pretty(&text)? + "\n";
    let mut written: Vec<PathBuf> = Vec::new();
    for place in places {
        let path = place.join(DESCRIPTION);
        if written.contains(&path) {
            continue;
        }
        fs::create_dir_all(place)?;
        // Created atomically, because others wait for it.
        let temporary = place.join(format!(".{DESCRIPTION}.{}", std::process::id()));
        fs::write(&temporary, &text)?;
        fs::rename(&temporary, &path)?;
        written.push(path);
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_runs_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let claim = DirectoryLock::take(directory.path()).unwrap();
        assert!(matches!(DirectoryLock::take(directory.path()), Err(DirectoryError::Taken { .. })));
        drop(claim);
        DirectoryLock::take(directory.path()).unwrap();
    }

    #[test]
    fn monitors_that_live_at_one_time_have_directories_of_their_own_and_places_are_given_back() {
        let base = PathBuf::from("somewhere/control-run");
        let take = |rank| DirectoryPlace::take(base.clone(), rank);
        let (first, second, other_rank) = (take(0), take(0), take(1));
        assert_eq!(first.directory(), base);
        assert_eq!(second.directory(), Path::new("somewhere/control-run-2"));
        assert_eq!(other_rank.directory(), base);
        drop(first);
        assert_eq!(take(0).directory(), base);
    }

    #[test]
    fn a_run_name_makes_one_directory_whatever_it_says() {
        assert_eq!(as_word("../a b/ü"), ".._a_b__");
    }
}
