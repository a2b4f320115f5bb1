//! A run and its ranks.

use std::fs;
use std::path::{Path, PathBuf};

use std::sync::Arc;

use trainmon_core::{RUN_FILE, Rank, RunFile, RunInfo};
use trainmon_journal::Recovered;
use trainmon_logs::{ColumnNames, Log};
use trainmon_report::first_of;

use super::alerts::{self, RankAlerts};
use super::error::ReadRunError;
use super::log::alerts_of_log;
use super::reader::StepReader;
use trainmon_baseline::{Files, NewestRun, RankSource, ReadRunError as RanksError, ranks_in};
use trainmon_run_files::{FileUse, file_name, is_rank_directory};

/// The choice of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankChoice {
    /// The lowest one.
    First,
    /// This one.
    Only(u32),
    /// All of them.
    All,
}

/// A run on disk.
#[derive(Debug)]
pub struct RecordedRun {
    /// The name: from its `run.json`, else from its directory.
    pub name: String,
    /// The number of ranks: from its `run.json` or a journal, else that of the existing ones.
    pub world_size: u32,
    /// The directory, or the journal.
    pub path: PathBuf,
    /// The selected run, if the directory contains several.
    pub newest: Option<NewestRun>,
    /// The chosen ranks, in order.
    pub ranks: Vec<RecordedRank>,
    /// All existing ranks, in order.
    pub all_ranks: Vec<u32>,
    /// Another tool's log, if one was read.
    pub log: Option<Arc<Log>>,
}

/// One rank of a run on disk.
#[derive(Debug)]
pub struct RecordedRank {
    source: StepSource,
    run: RunInfo,
}

/// The source of a rank.
#[derive(Debug)]
enum StepSource {
    /// Files of a monitor.
    Run(RankSource),
    /// The log of another tool, in memory.
    Log(Arc<Log>),
}

/// The number of ranks that an error lists.
const RANKS_SHOWN: usize = 8;

impl RecordedRun {
    /// Finds the run of a path; the newest one in a directory of several.
    ///
    /// # Errors
    /// There is none, a journal's beginning is damaged, or the requested rank does not exist.
    pub fn open(path: &Path, choice: RankChoice) -> Result<Self, ReadRunError> {
        let (sources, newest) = ranks_in(path)?;
        let all_ranks: Vec<u32> = sources.iter().map(|source| source.rank).collect();
        let taken = newest.as_ref().map_or_else(|| path.to_path_buf(), |newest| newest.taken.clone());
        let described = described(&sources)?;
        let directory = sources.first().map_or(&taken, |source| &source.path);
        let name = described.as_ref().map_or_else(|| name_of(directory, &taken), |(name, _)| name.clone());
        let world_size = described.map_or(all_ranks.len() as u32, |(_, world_size)| world_size);
        let is_chosen = |source: &RankSource, place: usize| match choice {
            RankChoice::First => place == 0,
            RankChoice::Only(rank) => source.rank == rank,
            RankChoice::All => true,
        };
        let chosen = sources.into_iter().enumerate().filter(|(place, source)| is_chosen(source, *place));
        let ranks: Vec<RecordedRank> = chosen
            .map(|(_, source)| {
                let run = RunInfo { run: name.clone(), rank: Rank(source.rank), local_rank: Rank(0), world_size };
                RecordedRank { source: StepSource::Run(source), run }
            })
            .collect();
        if let (RankChoice::Only(rank), []) = (choice, &ranks[..]) {
            let found = first_of(all_ranks.iter().map(u32::to_string), RANKS_SHOWN);
            return Err(ReadRunError::NoSuchRank { path: taken, rank, found });
        }
        Ok(Self { name, world_size, path: taken, newest, ranks, all_ranks, log: None })
    }

    /// Opens like [`Self::open`], or reads another tool's log if the path contains no run: one rank with the numbers of the
    /// whole run. `columns` names columns of such a log.
    ///
    /// # Errors
    /// As [`Self::open`]; there is neither a run nor a log, the log cannot be read, or columns are named for a run.
    pub fn open_any(path: &Path, choice: RankChoice, columns: &ColumnNames) -> Result<Self, ReadRunError> {
        let nothing = match Self::open(path, choice) {
            Ok(run) if columns.has_any() => return Err(ReadRunError::ColumnsOfRun { path: run.path }),
            Err(ReadRunError::Ranks(error)) if error.is_no_run() => error,
            opened => return opened,
        };
        match trainmon_logs::read(path, columns)? {
            Some(log) => Self::of_log(log, choice),
            None => Err(ReadRunError::Nothing { path: path.to_path_buf(), source: nothing }),
        }
    }

    fn of_log(log: Log, choice: RankChoice) -> Result<Self, ReadRunError> {
        if let RankChoice::Only(rank @ 1..) = choice {
            return Err(ReadRunError::NoSuchRank { path: log.path, rank, found: "0".to_owned() });
        }
        let log = Arc::new(log);
        let run = RunInfo { run: log.name.clone(), rank: Rank(0), local_rank: Rank(0), world_size: 1 };
        Ok(Self {
            name: log.name.clone(),
            world_size: 1,
            path: log.source.clone(),
            newest: None,
            ranks: vec![RecordedRank { source: StepSource::Log(Arc::clone(&log)), run }],
            all_ranks: vec![0],
            log: Some(log),
        })
    }

    /// The number of bytes to read.
    pub fn bytes(&self) -> u64 {
        self.ranks.iter().map(RecordedRank::bytes).sum()
    }
}

impl RecordedRank {
    /// The run that it belongs to.
    pub fn run(&self) -> &RunInfo {
        &self.run
    }

    /// The directory or the journal.
    pub fn path(&self) -> &Path {
        match &self.source {
            StepSource::Run(source) => &source.path,
            StepSource::Log(log) => &log.source,
        }
    }

    /// Seconds since the newest of its files changed; `None` if no file shows it.
    pub fn silent_for(&self) -> Option<u64> {
        let newest =
            fs::read_dir(self.path()).ok()?.filter_map(|file| file.ok()?.metadata().ok()?.modified().ok()).max();
        newest?.elapsed().ok().map(|since| since.as_secs())
    }

    /// The number of bytes to read.
    pub fn bytes(&self) -> u64 {
        match &self.source {
            StepSource::Run(source) => source.bytes(),
            StepSource::Log(log) => log.bytes,
        }
    }

    /// Whether it is read from a journal, whose size is fixed and whose file time does not show writes through memory.
    pub fn is_journal(&self) -> bool {
        matches!(&self.source, StepSource::Run(RankSource { files: Files::Journal, .. }))
    }

    /// Opens the reader of its steps.
    ///
    /// # Errors
    /// A file cannot be read, or its beginning is damaged.
    pub fn open(&self) -> Result<StepReader, ReadRunError> {
        self.open_as(FileUse::Held)
    }

    /// Opens like [`Self::open`], without keeping its CSV files open between steps: for many ranks side by side.
    pub(crate) fn open_beside_others(&self) -> Result<StepReader, ReadRunError> {
        self.open_as(FileUse::Reopened)
    }

    fn open_as(&self, how: FileUse) -> Result<StepReader, ReadRunError> {
        match &self.source {
            StepSource::Run(RankSource { files: Files::Csv(directory), .. }) => StepReader::of_csv(directory, how),
            StepSource::Run(RankSource { files: Files::Journal, path, .. }) => StepReader::of_journal(path),
            StepSource::Log(log) => Ok(StepReader::of_log(log)),
        }
    }

    /// The alerts of this rank, oldest first, with warnings: from `alerts.jsonl`, else from its journals, and earlier ones from
    /// `anomaly.json`. Findings of consecutive steps (`is_next`) are one alert. For another tool's log, the findings of the
    /// default rules.
    ///
    /// # Errors
    /// A file exists but cannot be read.
    pub fn alerts(&self, is_next: &dyn Fn(u64, u64) -> bool) -> Result<RankAlerts, ReadRunError> {
        match &self.source {
            StepSource::Run(RankSource { files: Files::Journal, path, rank }) => alerts::of_journal(path, *rank),
            StepSource::Run(RankSource { path, rank, .. }) => alerts::of_directory(path, *rank, is_next),
            StepSource::Log(log) => Ok(alerts_of_log(log)),
        }
    }
}

/// The name and the number of ranks, from `run.json` or a journal.
fn described(sources: &[RankSource]) -> Result<Option<(String, u32)>, RanksError> {
    let Some(first) = sources.first() else { return Ok(None) };
    if matches!(first.files, Files::Journal) {
        let run = Recovered::run_of(&first.path)?;
        return Ok(Some((run.run, run.world_size)));
    }
    let places = [first.path.parent(), Some(&*first.path)];
    let read = |directory: &Path| {
        let file: RunFile = serde_json::from_slice(&fs::read(directory.join(RUN_FILE)).ok()?).ok()?;
        Some((file.run, file.world_size))
    };
    Ok(places.into_iter().flatten().find_map(read))
}

/// The directory's name; for a rank's directory, that of its parent.
fn name_of(directory: &Path, path: &Path) -> String {
    let absolute = directory.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let is_rank = is_rank_directory(file_name(&absolute));
    let named = if is_rank { absolute.parent().unwrap_or(&absolute) } else { &absolute };
    file_name(named).to_owned()
}
