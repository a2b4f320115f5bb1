//! Detects the format of a path and chooses the file of a directory.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use trainmon_exporters::tensorboard::begins_as_events;

use crate::error::{FORMATS, LogError};
use crate::format::LogFormat;
use crate::formats::{csv, json, megatron, mlflow, tensorboard, trainer_state, wandb};
use crate::paths::{entries, file_name, modified};
use crate::raw::RawLog;

/// A detected log.
#[derive(Debug)]
pub(crate) struct Found {
    /// The file, or the directory whose files are read.
    pub(crate) file: PathBuf,
    pub(crate) format: LogFormat,
    /// The run's name.
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// The input to read.
#[derive(Debug)]
pub(crate) enum Candidate {
    /// A file; its content determines the format.
    File(PathBuf),
    /// The event files of a directory.
    Events(PathBuf, Vec<PathBuf>),
    /// A run in `mlruns`.
    MlFlow(PathBuf),
}

/// A candidate, and the choice if there were several.
#[derive(Debug)]
pub(crate) struct Chosen {
    candidate: Candidate,
    remarks: Vec<String>,
}

/// The depth to which event files are searched below a directory.
const DEPTH: usize = 4;
/// The largest number of directories searched for event files.
const MOST_DIRECTORIES: usize = 10_000;
/// The number of bytes read to detect a format.
const HEAD: u64 = 4096;
/// The number of characters shown of a file in an unknown format.
const SHOWN: usize = 40;

/// File names that do not identify the run; the directory's name is used instead.
const GENERIC: [&str; 7] = ["trainer_state", "metrics", "history", "wandb-history", "log", "logs", "output"];

/// Finds the log at a path; `None` for a directory without a log.
pub(crate) fn find(path: &Path) -> Result<Option<Chosen>, LogError> {
    let facts = path.metadata().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => LogError::Missing { path: path.to_path_buf() },
        _ => LogError::Read { path: path.to_path_buf(), source },
    })?;
    if facts.is_file() {
        return Ok(Some(Chosen { candidate: Candidate::File(path.to_path_buf()), remarks: Vec::new() }));
    }
    if !facts.is_dir() {
        let found = "it is neither a file nor a directory".to_owned();
        return Err(LogError::Unknown { path: path.to_path_buf(), found, hint: FORMATS });
    }
    in_directory(path)
}

/// The log in a directory that a tool wrote.
fn in_directory(path: &Path) -> Result<Option<Chosen>, LogError> {
    let entries = entries(path)?;
    let mut remarks = Vec::new();
    let chosen = |candidate, remarks| Ok(Some(Chosen { candidate, remarks }));
    let named = |name: &str| entries.iter().find(|entry| file_name(entry) == name);
    if let Some(state) = named(trainer_state::FILE) {
        return chosen(Candidate::File(state.clone()), remarks);
    }
    if let Some(state) = newest_checkpoint(&entries, &mut remarks) {
        return chosen(Candidate::File(state), remarks);
    }
    if let Some(file) = wandb::newest(path, &entries, &mut remarks)? {
        return chosen(Candidate::File(file), remarks);
    }
    if let Some(run) = mlflow::newest(path, &entries, &mut remarks)? {
        return chosen(Candidate::MlFlow(run), remarks);
    }
    let tables: Vec<&PathBuf> = entries.iter().filter(|entry| is_table(entry)).collect();
    if let Some((directory, files)) = newest_events(path, &mut remarks)? {
        return chosen(Candidate::Events(directory, files), remarks);
    }
    match &tables[..] {
        [] => Ok(None),
        [only] => chosen(Candidate::File((*only).clone()), remarks),
        [first, ..] => {
            let found = format!("it holds {} tables, `{}` among them", tables.len(), file_name(first));
            Err(LogError::Unknown { path: path.to_path_buf(), found, hint: "pass one of these files" })
        }
    }
}

/// Whether a file's name is that of a table.
fn is_table(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    path.is_file() && matches!(ending, "csv" | "tsv" | "jsonl" | "ndjson")
}

/// The state in the `checkpoint-<N>` with the largest number.
fn newest_checkpoint(entries: &[PathBuf], remarks: &mut Vec<String>) -> Option<PathBuf> {
    let state = |entry: &PathBuf| {
        let number: u64 = file_name(entry).strip_prefix("checkpoint-")?.parse().ok()?;
        let state = entry.join(trainer_state::FILE);
        state.is_file().then_some((number, state))
    };
    let states: Vec<(u64, PathBuf)> = entries.iter().filter_map(state).collect();
    let (number, newest) = states.iter().max_by_key(|(number, _)| *number)?;
    if states.len() > 1 {
        remarks.push(format!("read the newest of {} checkpoints: checkpoint-{number}", states.len()));
    }
    Some(newest.clone())
}

/// The directory with event files, at or below a path, that was written last.
fn newest_events(path: &Path, remarks: &mut Vec<String>) -> Result<Option<(PathBuf, Vec<PathBuf>)>, LogError> {
    let mut waiting = vec![(path.to_path_buf(), 0)];
    let mut found: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
    let (mut looked, mut unreadable) = (0, 0_u64);
    while let Some((directory, depth)) = waiting.pop() {
        looked += 1;
        let entries = match entries(&directory) {
            Ok(entries) => entries,
            Err(error) if depth == 0 => return Err(error),
            Err(_) => {
                unreadable += 1;
                continue;
            }
        };
        let events: Vec<PathBuf> = entries.iter().filter(|entry| tensorboard::is_event_file(entry)).cloned().collect();
        if !events.is_empty() {
            found.push((directory, events));
        }
        if depth < DEPTH && looked < MOST_DIRECTORIES {
            waiting.extend(entries.into_iter().filter(|entry| entry.is_dir()).map(|entry| (entry, depth + 1)));
        }
    }
    let own = found.iter().position(|(directory, _)| directory == path);
    let written = |(_, files): &(PathBuf, Vec<PathBuf>)| files.iter().filter_map(|file| modified(file)).max();
    let newest = (0..found.len()).max_by_key(|place| written(&found[*place]));
    let Some(taken) = own.or(newest) else { return Ok(None) };
    if unreadable > 0 {
        remarks.push(format!("cannot read {unreadable} subdirectories"));
    }
    if found.len() > 1 {
        let (directory, _) = &found[taken];
        let which = if own.is_some() { "the directory itself" } else { "the newest" };
        remarks.push(format!(
            "read {which} of {} directories with event files: `{}`",
            found.len(),
            directory.display()
        ));
    }
    Ok(Some(found.swap_remove(taken)))
}

/// Reads the detected log.
pub(crate) fn read(chosen: Chosen) -> Result<(Found, RawLog), LogError> {
    let Chosen { candidate, remarks } = chosen;
    let (found, mut raw) = match candidate {
        Candidate::Events(directory, files) => {
            let raw = tensorboard::read(&files)?;
            let name = name_of(&directory);
            (Found { bytes: size(&files), file: directory, format: LogFormat::TensorBoard, name }, raw)
        }
        Candidate::MlFlow(run) => {
            let (name, bytes, raw) = mlflow::read(&run)?;
            (Found { file: run, format: LogFormat::MlFlow, name, bytes }, raw)
        }
        Candidate::File(file) => read_file(file)?,
    };
    raw.remarks.splice(0..0, remarks);
    Ok((found, raw))
}

fn read_file(file: PathBuf) -> Result<(Found, RawLog), LogError> {
    let failed = |source| LogError::Read { path: file.clone(), source };
    let mut head = Vec::new();
    fs::File::open(&file).and_then(|open| open.take(HEAD).read_to_end(&mut head)).map_err(failed)?;
    let unknown = |found: String, hint| Err(LogError::Unknown { path: file.clone(), found, hint });
    let (format, raw) = match &head[..] {
        [] => return Err(LogError::Empty { path: file }),
        head if head.starts_with(wandb::MAGIC) => (LogFormat::Wandb, wandb::read(&file)?),
        head if begins_as_events(head) => (LogFormat::TensorBoard, tensorboard::read(std::slice::from_ref(&file))?),
        head if head.starts_with(b"SQLite format 3\0") => {
            let hint = "trainmon does not read MLflow databases: export the run with `mlflow.artifacts` or `mlflow experiments csv`, or log to \
                        files with the tracking URI file:./mlruns";
            return unknown("it is an SQLite database".to_owned(), hint);
        }
        head if head.starts_with(&[0x1f, 0x8b])
            || head.starts_with(b"PK\x03\x04")
            || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) =>
        {
            return unknown("it is compressed".to_owned(), "decompress it first");
        }
        head if head.contains(&0) => return unknown("it is a binary file".to_owned(), FORMATS),
        _ => {
            let text = fs::read(&file).map_err(failed)?;
            let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
            read_text(&file, text)?
        }
    };
    let (name, bytes) = (name_of(&file), size(std::slice::from_ref(&file)));
    Ok((Found { file, format, name, bytes }, raw))
}

/// Tries the text formats, the unambiguous ones first.
fn read_text(file: &Path, text: &[u8]) -> Result<(LogFormat, RawLog), LogError> {
    let trimmed = text.trim_ascii();
    if trimmed.is_empty() {
        return Err(LogError::Empty { path: file.to_path_buf() });
    }
    if matches!(trimmed.first(), Some(b'{' | b'[')) {
        if let Some(raw) = trainer_state::read(trimmed) {
            return Ok((LogFormat::TrainerState, raw));
        }
        if let Some(raw) = json::read(trimmed) {
            return Ok((LogFormat::Json, raw));
        }
        if trimmed.first() == Some(&b'{') {
            let (path, found) = (file.to_path_buf(), json::fault(trimmed));
            if found.is_empty() {
                let found = "it is JSON without a step, a loss or a gradient norm".to_owned();
                return Err(LogError::Unknown { path, found, hint: FORMATS });
            }
            return Err(LogError::Damaged { path, found });
        }
    }
    if let Some(raw) = megatron::read(text) {
        return Ok((LogFormat::Megatron, raw));
    }
    if let Some(raw) = csv::read(text) {
        return Ok((LogFormat::Csv, raw));
    }
    let line = trimmed.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line: String = String::from_utf8_lossy(line).trim().chars().take(SHOWN).collect();
    let found = format!("it begins with `{line}`");
    Err(LogError::Unknown { path: file.to_path_buf(), found, hint: FORMATS })
}

fn size(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| file.metadata().ok()).map(|facts| facts.len()).sum()
}

/// The run's name, from its file or directory.
fn name_of(path: &Path) -> String {
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let stem = absolute.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let is_file = absolute.is_file();
    let is_generic = is_file && (GENERIC.contains(&stem) || stem.contains("tfevents"));
    let mut place: &Path = &absolute;
    if is_generic {
        place = absolute.parent().unwrap_or(place);
        if file_name(place).starts_with("checkpoint-") {
            place = place.parent().unwrap_or(place);
        }
    }
    let own = if is_file && !is_generic { stem } else { file_name(place) };
    if own.is_empty() { "log".to_owned() } else { own.to_owned() }
}
