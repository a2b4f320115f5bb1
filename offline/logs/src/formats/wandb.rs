//! The `.wandb` file of an offline run: records in blocks of 32 KiB, as in a log of `LevelDB`, each a protobuf message.
//!
//! ```text
//! ":W&B" 0xBEE1 version │ checksum, length, type, bytes │ checksum, length, type, bytes │ … to the block's end
//! ```
//!
//! Type 1 is a whole record; 2, 3 and 4 are its first, middle and last part. The checksum is CRC-32 (that of zlib) over type and
//! bytes.

use std::fs;
use std::path::{Path, PathBuf};

use jiter::JsonValue;
use prost::Message;

use super::json;
use crate::error::LogError;
use crate::paths::{entries, file_name};
use crate::raw::{RawLog, RawRow};
use trainmon_report::counted;

/// The first bytes of every file.
pub(crate) const MAGIC: &[u8] = b":W&B";
/// Magic, number and version.
const FILE_HEAD: usize = 7;
const BLOCK: usize = 32 * 1024;
/// Checksum, length and type.
const RECORD_HEAD: usize = 7;
/// The directory of all runs.
const STORE: &str = "wandb";
/// The step of a row whose items do not contain it.
const STEP: &str = "_step";
/// The nesting depth of values that are read.
const DEPTH: usize = 4;

/// A record, with the members that are read.
#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(message, optional, tag = "2")]
    history: Option<History>,
}

/// The values logged in one call.
#[derive(Clone, PartialEq, Message)]
struct History {
    #[prost(message, repeated, tag = "1")]
    item: Vec<HistoryItem>,
    #[prost(message, optional, tag = "2")]
    step: Option<HistoryStep>,
}

/// A name and a value; `nested_key` holds names with several parts.
#[derive(Clone, PartialEq, Message)]
struct HistoryItem {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, repeated, tag = "2")]
    nested_key: Vec<String>,
    #[prost(string, tag = "16")]
    value_json: String,
}

#[derive(Clone, PartialEq, Message)]
struct HistoryStep {
    #[prost(int64, tag = "1")]
    num: i64,
}

/// The file of the run in a directory: in the directory itself, or of the newest run in its `wandb`.
pub(crate) fn newest(path: &Path, own: &[PathBuf], remarks: &mut Vec<String>) -> Result<Option<PathBuf>, LogError> {
    let file_in = |entries: &[PathBuf]| {
        let is_file = |entry: &&PathBuf| entry.extension().is_some_and(|ending| ending == "wandb") && entry.is_file();
        entries.iter().rfind(is_file).cloned()
    };
    if let Some(file) = file_in(own) {
        return Ok(Some(file));
    }
    // Before offline runs had such a file, their rows were JSON lines.
    if let Some(file) = own.iter().find(|entry| file_name(entry) == "wandb-history.jsonl") {
        return Ok(Some(file.clone()));
    }
    let inner = if file_name(path) == STORE {
        own.to_vec()
    } else {
        match own.iter().find(|entry| file_name(entry) == STORE && entry.is_dir()) {
            Some(store) => entries(store)?,
            None => return Ok(None),
        }
    };
    let is_run = |entry: &&PathBuf| {
        let name = file_name(entry);
        (name.starts_with("offline-run-") || name.starts_with("run-")) && entry.is_dir()
    };
    let mut runs: Vec<PathBuf> = Vec::new();
    for run in inner.iter().filter(is_run) {
        runs.extend(file_in(&entries(run)?));
    }
    // `offline-run-20261128_111252-lsznq8x3`: sorted by the time in the name.
    let time = |file: &PathBuf| {
        let directory = file.parent().map(file_name).unwrap_or_default();
        directory.trim_start_matches("offline-").trim_start_matches("run-").to_owned()
    };
    let newest = runs.iter().max_by_key(|file| time(file)).cloned();
    if let Some(newest) = newest.as_ref().filter(|_| runs.len() > 1) {
        remarks.push(format!("read the newest of {} wandb runs: `{}`", runs.len(), newest.display()));
    }
    Ok(newest)
}

/// Reads a file.
pub(crate) fn read(file: &Path) -> Result<RawLog, LogError> {
    let bytes = fs::read(file).map_err(|source| LogError::Read { path: file.to_path_buf(), source })?;
    let mut raw = RawLog::default();
    let mut records = Records { bytes: &bytes, place: FILE_HEAD, record: Vec::new(), damaged: 0, torn_at: None };
    let (mut place, mut unreadable) = (0, 0_u64);
    while records.next() {
        place += 1;
        match Record::decode(&records.record[..]) {
            Ok(Record { history: Some(history) }) => push(&mut raw, &history, place),
            Ok(_) => {}
            Err(_) => unreadable += 1,
        }
    }
    if let Some(torn) = records.torn_at {
        raw.notes.push(format!("the file is truncated within the record at byte {torn}"));
    }
    let damaged = records.damaged + unreadable;
    if damaged > 0 {
        raw.notes.push(format!("ignored {}", counted(damaged, "damaged record", "damaged records")));
    }
    Ok(raw)
}

fn push(raw: &mut RawLog, history: &History, place: u64) {
    let mut row = RawRow { place, ..RawRow::default() };
    for HistoryItem { key, nested_key, value_json } in &history.item {
        let name = if nested_key.is_empty() { key.clone() } else { nested_key.join(".") };
        if let Ok(value) = JsonValue::parse(value_json.as_bytes(), true) {
            json::add(raw, &mut row, &name, &value, DEPTH);
        } else {
            let column = raw.column(&name);
            raw.unread(column, value_json, place);
        }
    }
    let step = raw.column(STEP);
    if let Some(HistoryStep { num }) =
        history.step.as_ref().filter(|_| row.cells.iter().all(|(column, _)| *column != step))
    {
        row.cells.push((step, *num as f64));
    }
    raw.rows.push(row);
}

/// Iterates over the records of a file.
struct Records<'a> {
    bytes: &'a [u8],
    place: usize,
    record: Vec<u8>,
    damaged: u64,
    torn_at: Option<usize>,
}

impl Records<'_> {
    /// Reads the next complete record into `record`; returns whether there is one.
    fn next(&mut self) -> bool {
        self.record.clear();
        let mut is_open = false;
        loop {
            let left = BLOCK - self.place % BLOCK;
            if left < RECORD_HEAD {
                self.place += left;
            }
            let start = self.place;
            let Some(rest) = self.bytes.get(start..).filter(|rest| !rest.is_empty()) else {
                self.torn_at = is_open.then_some(start);
                return false;
            };
            let Some((kind, content)) = part(rest) else {
                self.torn_at = Some(start);
                return false;
            };
            let Ok(content) = content else {
                // The position of the next record is only known at the next block.
                self.damaged += 1;
                self.place = (start / BLOCK + 1) * BLOCK;
                is_open = false;
                self.record.clear();
                continue;
            };
            self.place += RECORD_HEAD + content.len();
            if matches!(kind, 1 | 2) {
                self.record.clear();
            } else if !is_open {
                // A part whose beginning was damaged.
                continue;
            }
            self.record.extend_from_slice(content);
            is_open = true;
            if matches!(kind, 1 | 4) {
                return true;
            }
        }
    }
}

/// The type and bytes of the next part; `None` if it is truncated, an error if its checksum is wrong.
fn part(rest: &[u8]) -> Option<(u8, Result<&[u8], ()>)> {
    let (head, rest) = rest.split_first_chunk::<RECORD_HEAD>()?;
    let [a, b, c, d, low, high, kind] = *head;
    let content = rest.get(..usize::from(u16::from_le_bytes([low, high])))?;
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&[kind]);
    checksum.update(content);
    let is_right = checksum.finalize() == u32::from_le_bytes([a, b, c, d]) && (1..=4).contains(&kind);
    Some((kind, if is_right { Ok(content) } else { Err(()) }))
}
