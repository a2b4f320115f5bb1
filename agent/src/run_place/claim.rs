//! Claims the directory of a run in the layout `run` when the monitor starts. Two runs never share one.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::Timestamp;
use trainmon_core::{LATEST_RUN, RUN_FILE, Rank, RunFile, RunInfo};
use trainmon_run_files::rank_directory;

/// The maximum number appended to a run's name.
const MAX_SAME_NAME: u32 = 100_000;

/// The directories of a run and of a rank in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimedPlace {
    pub(super) run_directory: PathBuf,
    pub(super) rank_directory: PathBuf,
}

impl ClaimedPlace {
    fn of(run_directory: PathBuf, run: &RunInfo) -> Self {
        Self { rank_directory: run_directory.join(rank_directory(run.rank)), run_directory }
    }

    /// Claims the first of `<name>`, `<name>-2`, … that belongs to no other job and has no directory of this rank. The ranks
    /// of a job thus choose the same one without communication. If a directory cannot be created, returns it anyway, and the
    /// exporters report the error.
    pub(super) fn take(base: &Path, run: &RunInfo, job: &str, now: Timestamp) -> Self {
        for number in 1..=MAX_SAME_NAME {
            let name = if number == 1 { run.run.clone() } else { format!("{}-{number}", run.run) };
            let place = Self::of(base.join(name), run);
            match place.make(base, run, job, now) {
                Ok(false) => {}
                Ok(true) | Err(_) => return place,
            }
        }
        Self::of(base.join(format!("{}-{}", run.run, std::process::id())), run)
    }

    /// Creates the directories. Returns whether they now belong to this rank.
    fn make(&self, base: &Path, run: &RunInfo, job: &str, now: Timestamp) -> io::Result<bool> {
        let (name, world_size, job) = (run.run.clone(), run.world_size, job.to_owned());
        let ours = RunFile { run: name, world_size, job, started: now.to_string() };
        if !self.run_directory.exists() {
            // Another rank may create it first.
            make_run_directory(base, &self.run_directory, run.rank, &ours)
                .or_else(|error| if self.run_directory.is_dir() { Ok(()) } else { Err(error) })?;
        }
        // A directory without the file belongs to something else.
        if !run_file_of(&self.run_directory).is_some_and(|there| is_of_one_job(&there, &ours)) {
            return Ok(false);
        }
        match fs::create_dir(&self.rank_directory) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Creates a run's directory with its description, atomically: it is renamed when complete.
fn make_run_directory(base: &Path, directory: &Path, rank: Rank, file: &RunFile) -> io::Result<()> {
    fs::create_dir_all(base)?;
    let text = serde_json::to_string_pretty(file)? + "\n";
    let unfinished = base.join(unfinished_name(rank));
    fs::create_dir(&unfinished)?;
    let made = fs::write(unfinished.join(RUN_FILE), text).and_then(|()| fs::rename(&unfinished, directory));
    if made.is_err() {
        fs::remove_dir_all(&unfinished).unwrap_or_default();
    }
    made
}

/// A name that no other process, node or thread uses.
fn unfinished_name(rank: Rank) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!(".trainmon-{rank}-{process}-{number}-{}", Timestamp::now().as_nanosecond())
}

fn run_file_of(run_directory: &Path) -> Option<RunFile> {
    serde_json::from_str(&fs::read_to_string(run_directory.join(RUN_FILE)).ok()?).ok()
}

/// Compares everything but the time, because ranks of a job start at different times.
fn is_of_one_job(left: &RunFile, right: &RunFile) -> bool {
    (&left.run, left.world_size, &left.job) == (&right.run, right.world_size, &right.job)
}

/// Points the link `<base>/latest` to a run's directory. Errors are ignored, because some file systems have no links. An
/// existing file or directory of that name is kept.
pub(super) fn link_latest(base: &Path, run_directory: &Path, rank: Rank) {
    let Some(name) = run_directory.file_name() else { return };
    let link = base.join(LATEST_RUN);
    if link.symlink_metadata().is_ok_and(|there| !there.is_symlink()) {
        return;
    }
    let unfinished = base.join(unfinished_name(rank));
    if make_link(Path::new(name), &unfinished).is_ok() && fs::rename(&unfinished, &link).is_err() {
        fs::remove_file(&unfinished).unwrap_or_default();
    }
}

#[cfg(unix)]
fn make_link(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn make_link(_target: &Path, _link: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(base: &Path, rank: u32, world_size: u32) -> String {
        take_of("train", "job", base, rank, world_size)
    }

    fn take_of(name: &str, job: &str, base: &Path, rank: u32, world_size: u32) -> String {
        let run = RunInfo { run: name.to_owned(), rank: Rank(rank), local_rank: Rank(rank), world_size };
        let place = ClaimedPlace::take(base, &run, job, Timestamp::UNIX_EPOCH);
        let found = place.rank_directory.strip_prefix(base).unwrap().display().to_string();
        assert!(place.rank_directory.starts_with(&place.run_directory));
        found
    }

    #[test]
    fn ranks_of_one_job_meet_and_a_second_run_of_the_name_never_mixes_with_the_first() {
        let base = tempfile::tempdir().unwrap();
        let base = &base.path().join("not/yet");
        assert_eq!([take(base, 1, 2), take(base, 0, 2)], ["train/rank_1", "train/rank_0"]);
        assert_eq!([take(base, 0, 2), take(base, 1, 2)], ["train-2/rank_0", "train-2/rank_1"]);
        // Ranks that the first two had not.
        assert_eq!(
            [3, 0, 2, 1].map(|rank| take(base, rank, 4)),
            [3, 0, 2, 1].map(|rank| format!("train-3/rank_{rank}"))
        );
        assert_eq!(take(base, 0, 1), "train-4/rank_0");
        let file: RunFile =
            serde_json::from_str(&fs::read_to_string(base.join("train-3").join(RUN_FILE)).unwrap()).unwrap();
        assert_eq!((file.run.as_str(), file.world_size, file.started.as_str()), ("train", 4, "1970-01-01T00:00:00Z"));
        let hidden = fs::read_dir(base)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with('.'));
        assert_eq!(hidden.count(), 0);
    }

    #[test]
    fn a_job_of_which_some_ranks_wrote_nothing_is_not_joined_by_another() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path();
        let take = |name, job, rank| take_of(name, job, base, rank, 2);
        assert_eq!(take("train", "first", 0), "train/rank_0");
        // Rank 1 of the second comes where rank 1 of the first never was.
        assert_eq!([1, 0].map(|rank| take("train", "second", rank)), ["train-2/rank_1", "train-2/rank_0"]);
        assert_eq!(take("train", "first", 1), "train/rank_1", "late, and still of the first");
        assert_eq!(take("train-2", "third", 0), "train-2-2/rank_0", "another name that looks like a second run");
        fs::create_dir(base.join("mine")).unwrap();
        assert_eq!(take("mine", "fourth", 0), "mine-2/rank_0", "a directory that is no run's");
    }

    #[test]
    fn runs_that_start_at_once_have_directories_of_their_own() {
        let base = tempfile::tempdir().unwrap();
        let mut taken: Vec<String> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| take(base.path(), 0, 1))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        taken.sort();
        taken.dedup();
        assert_eq!(taken.len(), 8, "{taken:?}");
    }

    #[test]
    fn a_file_in_the_way_is_stepped_around_and_what_cannot_be_made_is_left_to_the_exporters() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("train"), "").unwrap();
        assert_eq!(take(base.path(), 0, 1), "train-2/rank_0");
        let no_directory = base.path().join("train/below");
        assert_eq!(take(&no_directory, 0, 1), "train/rank_0");
    }

    #[cfg(unix)]
    #[test]
    fn latest_leads_to_the_newest_run_and_replaces_nothing_but_a_link() {
        let base = tempfile::tempdir().unwrap();
        let link = base.path().join(LATEST_RUN);
        for run in ["one", "two"] {
            link_latest(base.path(), &base.path().join(run), Rank(0));
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(run));
        }
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1);
        fs::remove_file(&link).unwrap();
        fs::write(&link, "mine").unwrap();
        link_latest(base.path(), &base.path().join("three"), Rank(0));
        assert_eq!(fs::read_to_string(&link).unwrap(), "mine");
        fs::remove_file(&link).unwrap();
        fs::create_dir(&link).unwrap();
        link_latest(base.path(), &base.path().join("three"), Rank(0));
        assert!(link.symlink_metadata().unwrap().is_dir());
        assert_eq!(fs::read_dir(&link).unwrap().count(), 0);
    }
}
