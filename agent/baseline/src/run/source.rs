//! What there is to read: run directories, and the tables in them in the order in which they were written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trainmon_core::config::TimeTag;
use trainmon_core::{LEFT_OUT_FILE, LeftOut};

use super::error::RunError;

/// The directory of one run and rank, of ours or of msprobe's.
#[derive(Debug)]
pub struct RunDirectory {
    /// Where it lies.
    pub path: PathBuf,
    /// What it is called: `rank3`; by its directory if another has that name.
    pub name: String,
    /// The tables of each prefix, the earliest steps first.
    pub tables: BTreeMap<String, Vec<PathBuf>>,
    /// The table about the run itself.
    pub steps: Option<PathBuf>,
    /// CSV files that are no table of a monitor.
    pub strangers: Vec<PathBuf>,
    /// Rows that are left out since others say the same.
    pub left_out: LeftOut,
}

/// Beside the tables and without numbers.
const STACKS: &str = "stack_info.csv";
const STEPS: &str = "steps.csv";

/// The ranks' directories of a path: itself, or those it holds, by rank; several of one rank have other names.
///
/// # Errors
/// A directory cannot be read, or it is no run's.
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
            [] => "it is empty",
            _ => "neither it nor a directory of a rank in it has CSV files of a monitor",
        };
        return Err(RunError::NotARun { path: path.to_path_buf(), found });
    }
    name_apart(&mut runs);
    runs.sort_by_key(|run| (rank_of(&run.path), run.path.clone()));
    Ok(runs)
}

/// Several runs of one rank are called by their directories.
fn name_apart(runs: &mut [RunDirectory]) {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for run in runs {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = file_name(&run.path).to_owned();
        }
    }
}

impl RunDirectory {
    /// `None` if no table of a monitor is in it.
    fn open(path: &Path, entries: &[PathBuf]) -> Option<Self> {
        let mut tables: BTreeMap<String, Vec<(Place, PathBuf)>> = BTreeMap::new();
        let (mut steps, mut strangers) = (None, Vec::new());
        for entry in entries.iter().filter(|entry| entry.is_file()) {
            let name = file_name(entry);
            if let Some((prefix, place)) = table_name(name) {
                tables.entry(prefix.to_owned()).or_default().push((place, entry.clone()));
            } else if name == STEPS {
                steps = Some(entry.clone());
            } else if name != STACKS && Path::new(name).extension().is_some_and(|extension| extension == "csv") {
                strangers.push(entry.clone());
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
        let left_out = left_out(entries);
        Some(Self { path: path.to_path_buf(), name, tables, steps, strangers, left_out })
    }

    /// Every file that will be read.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.tables.values().flatten().chain(&self.steps)
    }
}

/// What the file says that lies beside the tables; one that cannot be read says nothing.
fn left_out(entries: &[PathBuf]) -> LeftOut {
    let file = entries.iter().find(|entry| file_name(entry) == LEFT_OUT_FILE);
    let text = file.and_then(|path| std::fs::read_to_string(path).ok());
    let object: Option<serde_json::Map<String, serde_json::Value>> =
        text.and_then(|text| serde_json::from_str(&text).ok());
    LeftOut::of_keys(object.iter().flat_map(|object| object.keys().map(String::as_str)))
}

/// Where a table stands among those of its prefix: by its first step; of one that was set aside (`.old`, `.old.2`), in
/// mid-run, before the one that took its place.
type Place = (u64, u32);

/// Prefix and place of `grad_reduced_0-99.csv`, `weight_grad_step0-99.csv`, `grad_reduced_0-99.csv.old.2`.
fn table_name(name: &str) -> Option<(&str, Place)> {
    let (stem, rest) = name.split_once(".csv")?;
    let order = match rest.strip_prefix(".old") {
        None if rest.is_empty() => u32::MAX,
        None => return None,
        Some("") => 1,
        Some(number) => number.strip_prefix('.')?.parse().ok()?,
    };
    let (prefix, _) = stem.rsplit_once('_')?;
    let (first, _) = steps_of_table(Path::new(name))?;
    Some((prefix, (first, order)))
}

/// The first and the last step that a table may hold, as its name says.
pub(super) fn steps_of_table(path: &Path) -> Option<(u64, u64)> {
    let (stem, _) = file_name(path).split_once(".csv")?;
    let (_, steps) = stem.rsplit_once('_')?;
    let (first, last) = steps.strip_prefix("step").unwrap_or(steps).split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The rank in `Nov20_16-05-09-rank3-1f0a9c42`, `rank_3`.
pub fn rank_of(path: &Path) -> Option<u32> {
    let name = file_name(path);
    let number = name.strip_prefix("rank_").or_else(|| {
        let (time, rest) = name.split_once("-rank")?;
        TimeTag::parse(time).ok()?;
        rest.split_once('-').map(|(rank, _)| rank)
    });
    number?.parse().ok()
}

/// The last part of a path, empty if it is no text.
pub fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("")
}

/// What a directory holds, by name.
fn entries(path: &Path) -> Result<Vec<PathBuf>, RunError> {
    let failed = |source| RunError::ReadDirectory { path: path.to_path_buf(), source };
    let listed = std::fs::read_dir(path).map_err(failed)?;
    let mut found = listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_told_by_its_name() {
        for (name, expected) in [
            ("grad_reduced_0-0.csv", Some(("grad_reduced", (0, u32::MAX)))),
            ("weight_grad_step10-19.csv", Some(("weight_grad", (10, u32::MAX)))),
            ("exp_avg_sq_5-5.csv.old", Some(("exp_avg_sq", (5, 1)))),
            ("exp_avg_sq_5-5.csv.old.2", Some(("exp_avg_sq", (5, 2)))),
            ("steps.csv", None),
            ("stack_info.csv", None),
            ("grad_reduced_0-0.csv.bak", None),
            ("mon_step-1-0.csv", None),
        ] {
            assert_eq!(table_name(name), expected, "{name}");
        }
    }

    #[test]
    fn a_rank_is_told_by_its_directory() {
        for (name, expected) in [
            ("Nov20_16-05-09-rank3-1f0a9c42", Some(3)),
            ("rank_12", Some(12)),
            ("tensorboard", None),
            ("a-rankx-b", None),
        ] {
            assert_eq!(rank_of(Path::new(name)), expected, "{name}");
        }
    }
}
