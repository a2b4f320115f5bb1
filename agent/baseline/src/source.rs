//! Resolves a path to the ranks of a run, each with its CSV files or its journal.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trainmon_core::config::TimeTag;
use trainmon_journal::{FILE_EXTENSION, Recovered};
use trainmon_run_files::{RunDirectory, RunError, file_name, parse_v1_directory, rank_of, runs_in};

use crate::error::ReadRunError;
use crate::journals::{JournalsError, journals_in};
use crate::newest::{NewestRun, run_directory_of};

/// A rank of the target with those of the golden runs that have it; the first golden run always does.
pub type RankPair<'a> = (&'a RankSource, Vec<&'a RankSource>);

/// The maximum depth of a dump's file below its root.
const DUMP_DEPTH: usize = 3;

/// One rank of a run.
#[derive(Debug)]
pub struct RankSource {
    /// The rank's number.
    pub rank: u32,
    /// The rank's directory or journal.
    pub path: PathBuf,
    /// The files to read.
    pub files: Files,
}

/// The files of a rank.
#[derive(Debug)]
pub enum Files {
    /// CSV files.
    Csv(RunDirectory),
    /// A journal.
    Journal,
}

impl RankSource {
    /// The number of bytes to read.
    pub fn bytes(&self) -> u64 {
        let length = |path: &PathBuf| path.metadata().map_or(0, |file| file.len());
        match &self.files {
            Files::Csv(run) => run.files().map(length).sum(),
            Files::Journal => length(&self.path),
        }
    }
}

/// Whether the path is the output of a monitor: a journal, or a directory of CSV files or journals, of one or more
/// ranks.
pub fn is_run(path: &Path) -> bool {
    ranks_in(path).is_ok_and(|(ranks, _)| !ranks.is_empty())
}

/// The ranks of a run, by number. With several runs, those of the newest, with a note about it.
///
/// # Errors
/// The path does not exist, is not a run, or cannot be read.
pub fn ranks_in(path: &Path) -> Result<(Vec<RankSource>, Option<NewestRun>), ReadRunError> {
    let (run, newest) = run_directory_of(path);
    let mut ranks = find(&run)?;
    ranks.sort_by_cached_key(|source| (source.rank, made(&source.path), source.path.clone()));
    let runs = ranks.chunk_by(|one, other| one.rank == other.rank).map(<[_]>::len).max().unwrap_or(0);
    // In msprobe's layout, each run of a rank has a directory next to the others: the last one of each rank is its
    // newest.
    let mut newest_ranks: Vec<RankSource> = Vec::with_capacity(ranks.len());
    for source in ranks {
        match newest_ranks.last_mut() {
            Some(earlier) if earlier.rank == source.rank => *earlier = source,
            _ => newest_ranks.push(source),
        }
    }
    let newest_of_ranks = newest_ranks
        .iter()
        .max_by_key(|source| made(&source.path))
        .filter(|_| runs > 1)
        .map(|newest| NewestRun { directory: path.to_path_buf(), runs, taken: newest.path.clone() });
    Ok((newest_ranks, newest.or(newest_of_ranks)))
}

/// When a rank's files were started: from the directory's name (which has no year), and from their last change.
fn made(path: &Path) -> (Option<TimeTag>, Option<SystemTime>) {
    let tag = parse_v1_directory(file_name(path)).map(|(time, _)| time);
    (tag, path.metadata().and_then(|metadata| metadata.modified()).ok())
}

fn find(path: &Path) -> Result<Vec<RankSource>, ReadRunError> {
    let facts = path.metadata().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => ReadRunError::Missing { path: path.to_path_buf() },
        _ => ReadRunError::Read { path: path.to_path_buf(), source },
    })?;
    if !facts.is_file() && !facts.is_dir() {
        let found = "it is neither a file nor a directory";
        return Err(ReadRunError::NotARun { path: path.to_path_buf(), found });
    }
    if facts.is_file() {
        if path.extension().is_some_and(|extension| extension == FILE_EXTENSION) {
            return Ok(vec![journal(path)?]);
        }
        let found = "it is a file, but not a journal (`.tmj`)";
        return Err(ReadRunError::NotARun { path: path.to_path_buf(), found });
    }
    match runs_in(path) {
        // The CSV files may have been replaced by the journal.
        Ok(runs) if runs.iter().all(|run| run.tables.is_empty()) => {
            journals(path)?.map_or_else(|| Ok(runs.into_iter().map(of_csv).collect()), Ok)
        }
        Ok(runs) => Ok(runs.into_iter().map(of_csv).collect()),
        Err(RunError::NotARun { found, .. }) => journals(path)?.ok_or_else(|| {
            let found = if holds_dump(path, DUMP_DEPTH) { "it contains dumps (dump.json)" } else { found };
            ReadRunError::NotARun { path: path.to_path_buf(), found }
        }),
        Err(error) => Err(error.into()),
    }
}

fn of_csv(run: RunDirectory) -> RankSource {
    RankSource { rank: rank_of(&run.path).unwrap_or(0), path: run.path.clone(), files: Files::Csv(run) }
}

fn journals(path: &Path) -> Result<Option<Vec<RankSource>>, ReadRunError> {
    match journals_in(path) {
        Ok(paths) => paths.iter().map(|path| journal(path)).collect::<Result<_, _>>().map(Some),
        Err(JournalsError::NoJournal { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn journal(path: &Path) -> Result<RankSource, ReadRunError> {
    // Of the other ranks' journals, only the header is read.
    let rank = Recovered::run_of(path)?.rank.0;
    Ok(RankSource { rank, path: path.to_path_buf(), files: Files::Journal })
}

fn holds_dump(directory: &Path, depth: usize) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else { return false };
    entries.filter_map(Result::ok).any(|entry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        entry.file_name() == "dump.json" || (depth > 0 && is_directory && holds_dump(&entry.path(), depth - 1))
    })
}
