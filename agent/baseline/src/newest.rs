//! Selection of the newest run in a directory with several.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;
use trainmon_core::{RUN_FILE, RunFile};
use trainmon_journal::FILE_EXTENSION;

use trainmon_run_files::{file_name, is_rank_directory, rank_of};

/// The directory of alert findings, next to the rank directories.
const FINDINGS: &str = "anomaly_detected";
/// The directory of a rank's event files.
const EVENTS: &str = "tensorboard";

/// The newest run, chosen from a directory of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewestRun {
    /// The requested directory.
    pub directory: PathBuf,
    /// The number of runs in it.
    pub runs: usize,
    /// The directory of the newest run; that of the first rank if each rank has its own.
    pub taken: PathBuf,
}

impl NewestRun {
    /// One line for people. `verb` is what happens with the run: `comparing`.
    pub fn in_words(&self, verb: &str) -> String {
        let Self { directory, runs, taken } = self;
        format!("`{}` contains {runs} runs; {verb} the newest, {}\n", directory.display(), file_name(taken))
    }
}

/// The run directory that a path refers to (layout `run`). For a directory of several runs, the newest, with a note
/// about it. Other paths are returned unchanged.
pub fn run_directory_of(path: &Path) -> (PathBuf, Option<NewestRun>) {
    let inner = directories(path);
    if inner.iter().any(|one| is_rank_directory(file_name(one))) {
        return (path.to_path_buf(), None);
    }
    let is_older_layout = |one: &PathBuf| rank_of(one).is_some() && !one.join(RUN_FILE).is_file();
    let (older_layout, others): (Vec<PathBuf>, Vec<PathBuf>) = inner.into_iter().partition(is_older_layout);
    let runs: Vec<PathBuf> = others.into_iter().filter(|one| is_run(one)).collect();
    let Some((taken, word)) = newest_of(path, runs) else { return (path.to_path_buf(), None) };
    let newest = started(&taken);
    // A directory of msprobe's layout may contain runs of both layouts.
    if older_layout.iter().any(|one| changed(one) > newest) {
        return (path.to_path_buf(), None);
    }
    (taken, word)
}

/// The newest run in a directory, by its recorded start time, else by the last change of its directory. With a note
/// about it if there are several; `None` without any.
pub fn newest_of(directory: &Path, runs: Vec<PathBuf>) -> Option<(PathBuf, Option<NewestRun>)> {
    let count = runs.len();
    let (_, taken) = runs.into_iter().map(|run| (started(&run), run)).max()?;
    let word = || NewestRun { directory: directory.to_path_buf(), runs: count, taken: taken.clone() };
    let word = (count > 1).then(word);
    Some((taken, word))
}

/// Whether a directory contains data of a run. A run that was started and never made a step has none.
fn is_run(directory: &Path) -> bool {
    let is_written = |rank: &PathBuf| {
        let entries = fs::read_dir(rank).into_iter().flatten().filter_map(Result::ok);
        entries.map(|entry| entry.path()).any(|entry| {
            let is_of_run = |extension: &std::ffi::OsStr| extension == "csv" || extension == FILE_EXTENSION;
            entry.extension().is_some_and(is_of_run) || entry.file_name().is_some_and(|name| name == EVENTS)
        })
    };
    let ranks: Vec<PathBuf> =
        directories(directory).into_iter().filter(|one| is_rank_directory(file_name(one))).collect();
    !ranks.is_empty() && (ranks.iter().any(is_written) || directory.join(FINDINGS).is_dir())
}

/// The start time of a run: recorded by the run, else the last change of its directory.
fn started(run: &Path) -> Timestamp {
    let file = fs::read(run.join(RUN_FILE)).ok();
    let file = file.and_then(|text| serde_json::from_slice::<RunFile>(&text).ok());
    file.and_then(|file| file.started.parse().ok()).unwrap_or_else(|| changed(run))
}

fn changed(path: &Path) -> Timestamp {
    let changed = path.metadata().and_then(|metadata| metadata.modified()).ok();
    changed.and_then(|time| Timestamp::try_from(time).ok()).unwrap_or(Timestamp::MIN)
}

/// The directories in a directory, by name, without symbolic links (one points to the newest run) and hidden ones.
pub fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let shown = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
    let mut found: Vec<PathBuf> = shown.filter(|path| !file_name(path).starts_with('.')).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(base: &Path, run: &str, started: Option<&str>, file: &str) {
        fs::create_dir_all(base.join(run).join("rank_0")).unwrap();
        if !file.is_empty() {
            fs::write(base.join(run).join("rank_0").join(file), "").unwrap();
        }
        if let Some(started) = started {
            let (run, started) = (run.to_owned(), started.to_owned());
            let facts = RunFile { run: run.clone(), world_size: 1, job: String::new(), started };
            fs::write(base.join(&run).join(RUN_FILE), serde_json::to_string(&facts).unwrap()).unwrap();
        }
    }

    #[test]
    fn the_newest_run_is_told_by_its_own_word_and_the_link_is_none() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path();
        assert_eq!(run_directory_of(base), (base.to_path_buf(), None));
        put(base, "b", Some("2026-11-23T04:38:12.5Z"), "steps.csv");
        assert_eq!(run_directory_of(base), (base.join("b"), None), "the only one needs no word");
        put(base, "c", Some("2026-11-23T04:38:12Z"), "journal_rank0.tmj");
        put(base, "d", Some("2027-01-01T00:00:00Z"), "control.json");
        put(base, ".e", Some("2027-01-01T00:00:00Z"), "steps.csv");
        #[cfg(unix)]
        std::os::unix::fs::symlink("c", base.join("latest")).unwrap();
        let (run, word) = run_directory_of(base);
        assert_eq!(run, base.join("b"));
        let said = word.unwrap().in_words("comparing");
        assert_eq!(said, format!("`{}` contains 2 runs; comparing the newest, b\n", base.display()));
        // One without the file is as old as its directory.
        put(base, "a", None, "grad_reduced_0-9.csv");
        assert_eq!(run_directory_of(base).0, base.join("a"));
        #[cfg(unix)]
        assert_eq!(run_directory_of(&base.join("latest")), (base.join("latest"), None));
        for itself in ["a", "a/rank_0", "nowhere"] {
            assert_eq!(run_directory_of(&base.join(itself)), (base.join(itself), None));
        }
    }

    #[test]
    fn a_newer_run_of_msprobes_layout_is_left_to_those_who_know_it() {
        let base = tempfile::tempdir().unwrap();
        put(base.path(), "a", Some("2001-11-23T04:38:12.5Z"), "steps.csv");
        fs::create_dir(base.path().join("Nov20_16-05-09-rank0-1f0a9c42")).unwrap();
        assert_eq!(run_directory_of(base.path()), (base.path().to_path_buf(), None));
        put(base.path(), "b", Some("2999-01-01T00:00:00Z"), "steps.csv");
        assert_eq!(run_directory_of(base.path()).0, base.path().join("b"));
        // Called as the ranks' directories of that layout are.
        put(base.path(), "lora-rank8-2", Some("2999-02-01T00:00:00Z"), "steps.csv");
        assert_eq!(run_directory_of(base.path()).0, base.path().join("lora-rank8-2"));
    }
}
