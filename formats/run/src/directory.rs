//! Run directories, and the tables in them in the order in which they were written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trainmon_core::LeftOut;

use crate::error::RunError;
use crate::left_out::read_left_out;
use crate::names::{STACKS_FILE, STEPS_FILE, TableName, file_name, rank_of};

/// The directory of one run and rank, written by trainmon or msprobe.
#[derive(Debug)]
pub struct RunDirectory {
    /// The path of the directory.
    pub path: PathBuf,
    /// The name: `rank3`, or the directory's name if another one has that name.
    pub name: String,
    /// The tables of each prefix, the earliest steps first.
    pub tables: BTreeMap<String, Vec<PathBuf>>,
    /// The table about the run itself.
    pub steps: Option<PathBuf>,
    /// CSV files that are not a monitor's tables.
    pub other_files: Vec<PathBuf>,
    /// The kinds of rows that are omitted because they repeat other rows.
    pub left_out: LeftOut,
}

/// The rank directories of a path: the path itself, or those in it, by rank. Several directories of one rank get
/// different names.
///
/// # Errors
/// A directory cannot be read, or it is not a run's.
pub fn runs_in(path: &Path) -> Result<Vec<RunDirectory>, RunError> {
    let entries = entries(path)?;
    if let Some(run) = RunDirectory::open(path, &entries) {
        return Ok(vec![run]);
    }
    let mut runs = Vec::new();
    for directory in entries.iter().filter(|entry| entry.is_dir() && rank_of(entry).is_some()) {
        runs.extend(RunDirectory::open(directory, &self::entries(directory)?));
    }
    if runs.is_empty() {
        let found = match &entries[..] {
            [] => "the directory is empty",
            _ => "neither the directory nor a rank's directory in it has CSV files of a monitor",
        };
        return Err(RunError::NotARun { path: path.to_path_buf(), found });
    }
    name_apart(&mut runs);
    runs.sort_by_key(|run| (rank_of(&run.path), run.path.clone()));
    Ok(runs)
}

/// Names several runs of one rank by their directories.
fn name_apart(runs: &mut [RunDirectory]) {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for run in runs {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = file_name(&run.path).to_owned();
        }
    }
}

impl RunDirectory {
    /// `None` if the directory has no tables of a monitor.
    fn open(path: &Path, entries: &[PathBuf]) -> Option<Self> {
        let mut tables: BTreeMap<String, Vec<(Place, PathBuf)>> = BTreeMap::new();
        let (mut steps, mut other_files) = (None, Vec::new());
        for entry in entries.iter().filter(|entry| entry.is_file()) {
            let name = file_name(entry);
            if let Some(table) = TableName::of(entry) {
                tables.entry(table.prefix.to_owned()).or_default().push((place(table), entry.clone()));
            } else if name == STEPS_FILE {
                steps = Some(entry.clone());
            } else if name != STACKS_FILE && Path::new(name).extension().is_some_and(|extension| extension == "csv") {
                other_files.push(entry.clone());
            }
        }
        if tables.is_empty() && steps.is_none() {
            return None;
        }
        let in_order = |mut files: Vec<(Place, PathBuf)>| {
            files.sort();
            files.into_iter().map(|(_, path)| path).collect()
        };
        let tables = tables.into_iter().map(|(prefix, files)| (prefix, in_order(files))).collect();
        let name = format!("rank{}", rank_of(path).unwrap_or(0));
        // An unreadable file counts as absent.
        let left_out = read_left_out(path).unwrap_or_default();
        Some(Self { path: path.to_path_buf(), name, tables, steps, other_files, left_out })
    }

    /// Every file that will be read.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.tables.values().flatten().chain(&self.steps)
    }
}

/// The sort key of a table among those of its prefix: its first step. A renamed table (`.old`, `.old.2`), common after
/// a resume, comes before the one that replaced it.
type Place = (u64, u32);

fn place(table: TableName<'_>) -> Place {
    (table.first, table.set_aside.unwrap_or(u32::MAX))
}

/// The entries of a directory, sorted by name.
fn entries(path: &Path) -> Result<Vec<PathBuf>, RunError> {
    let failed = |source| RunError::ReadDirectory { path: path.to_path_buf(), source };
    let listed = std::fs::read_dir(path).map_err(failed)?;
    let mut found = listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    found.sort();
    Ok(found)
}
