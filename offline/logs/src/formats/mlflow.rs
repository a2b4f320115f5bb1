//! MLflow's files: `mlruns/<experiment>/<run>/metrics/<name>`, with a line `milliseconds value step` for each value.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::LogError;
use crate::paths::{entries, file_name};
use crate::raw::{RawLog, number};
use trainmon_report::counted;

/// The directory of the values.
const METRICS: &str = "metrics";
/// The file that describes a run or an experiment.
const META: &str = "meta.yaml";
/// The directory of all experiments.
const STORE: &str = "mlruns";
/// The nesting depth of metric files: metric names may contain slashes.
const DEPTH: usize = 8;

/// The run at a path: the path itself, or the newest run of an experiment, of a store, or of a directory with a store.
pub(crate) fn newest(path: &Path, entries: &[PathBuf], remarks: &mut Vec<String>) -> Result<Option<PathBuf>, LogError> {
    if is_run(path) {
        return Ok(Some(path.to_path_buf()));
    }
    let store = entries.iter().find(|entry| file_name(entry) == STORE && entry.is_dir());
    let inner = match store {
        Some(store) => self::entries(store)?,
        None => entries.to_vec(),
    };
    let mut runs: Vec<PathBuf> = inner.iter().filter(|entry| is_run(entry)).cloned().collect();
    for experiment in inner.iter().filter(|entry| entry.join(META).is_file() && !is_run(entry)) {
        runs.extend(self::entries(experiment)?.into_iter().filter(|entry| is_run(entry)));
    }
    let newest = runs.iter().max_by_key(|run| start(run)).cloned();
    if let Some(newest) = newest.as_ref().filter(|_| runs.len() > 1) {
        remarks.push(format!("read the newest of {} MLflow runs: `{}`", runs.len(), newest.display()));
    }
    Ok(newest)
}

fn is_run(path: &Path) -> bool {
    path.join(METRICS).is_dir() && path.join(META).is_file()
}

/// A member of a run's description.
fn described(run: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(run.join(META)).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim();
    Some(value.trim_matches(['\'', '"']).to_owned())
}

fn start(run: &Path) -> u64 {
    described(run, "start_time").and_then(|time| time.parse().ok()).unwrap_or(0)
}

/// Reads a run: its name, its size in bytes, and its values.
pub(crate) fn read(run: &Path) -> Result<(String, u64, RawLog), LogError> {
    let directory = run.join(METRICS);
    let mut files = Vec::new();
    collect(&directory, DEPTH, &mut files)?;
    let (mut raw, mut bytes) = (RawLog::default(), 0);
    for file in &files {
        let text = fs::read(file).map_err(|source| LogError::Read { path: file.clone(), source })?;
        bytes += text.len() as u64;
        let name = file.strip_prefix(&directory).unwrap_or(file).to_string_lossy().replace('\\', "/");
        let (mut unread, mut first) = (0_u64, 0);
        for (place, line) in (1..).zip(String::from_utf8_lossy(&text).lines()) {
            match point(line) {
                Some((time, value, step)) => raw.point(place, step, time, (&name, value)),
                None if line.trim().is_empty() => {}
                None => {
                    first = if unread == 0 { place } else { first };
                    unread += 1;
                }
            }
        }
        if unread > 0 {
            raw.notes.push(format!(
                "`{}`: ignored {}, first in line {first}",
                file.display(),
                counted(unread, "line that is not `time value step`", "lines that are not `time value step`")
            ));
        }
    }
    if files.is_empty() {
        return Err(LogError::Empty { path: directory });
    }
    let name = described(run, "run_name").filter(|name| !name.is_empty() && !name.contains('/'));
    Ok((name.unwrap_or_else(|| file_name(run).to_owned()), bytes, raw))
}

/// The time, value and step of a line. Old versions have no step, and newer ones append further fields.
fn point(line: &str) -> Option<(f64, f64, i64)> {
    let mut parts = line.split_whitespace();
    let (time, value) = (parts.next()?.parse().ok()?, number(parts.next()?)?);
    let step = parts.next().map_or(Some(0), |step| step.parse().ok())?;
    Some((time, value, step))
}

fn collect(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), LogError> {
    for entry in entries(directory)? {
        if entry.is_dir() && depth > 0 {
            collect(&entry, depth - 1, files)?;
        } else if entry.is_file() {
            files.push(entry);
        }
    }
    Ok(())
}
