//! Writes event files. A directory is a run in TensorBoard's terms.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use prost::Message as _;
use trainmon_core::Step;

use super::Histogram;
use super::message::{Content, Event, PluginData, Summary, SummaryMetadata, SummaryValue, TensorMessage, What};
use super::record::framed;
use crate::ExportError;

/// The format that every reader since 2016 supports.
const FILE_VERSION: &str = "brain.Event:2";

/// Numbers the files of this process, so that all names differ and later files sort last.
static FILES: AtomicU64 = AtomicU64::new(0);

/// A tagged value of one step.
#[derive(Clone, Debug)]
pub struct Point<'a> {
    /// TensorBoard groups charts by the part before the first `/`.
    pub tag: &'a str,
    /// The value.
    pub value: Value,
}

/// The content of a point.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number, written as the nearest float32, the only scalar of the format.
    Scalar(f64),
    /// A distribution.
    Histogram(Histogram),
    /// A text, which TensorBoard renders as Markdown.
    Text(String),
}

/// Appends to one run. The directory and the file are created with the first event.
///
/// Every event is one record and one write, and is with the operating system when [`append`](Self::append) returns. A
/// kill during the write leaves an incomplete last record, which TensorBoard skips. After a failed write, the next
/// event goes to a new file, because a reader may have seen the incomplete part.
#[derive(Debug)]
pub struct EventWriter {
    directory: PathBuf,
    file: Option<EventFile>,
}

#[derive(Debug)]
struct EventFile {
    path: PathBuf,
    file: File,
    good_length: u64,
    /// Whether the file contains more than its version.
    holds_events: bool,
    /// Tags that this file has described: a reader takes a tag's description from its first value.
    described: HashSet<Box<str>>,
}

impl EventWriter {
    /// A run in this directory.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, file: None }
    }

    /// The number of different tags in the current file.
    pub fn tags(&self) -> usize {
        self.file.as_ref().map_or(0, |file| file.described.len())
    }

    /// Appends the points of a step; nothing without points. `unix_seconds` is the step's own time.
    ///
    /// # Errors
    /// The directory or file cannot be written. The points are lost; earlier ones stay.
    pub fn append(&mut self, unix_seconds: f64, step: Step, points: &[Point<'_>]) -> Result<(), ExportError> {
        if points.is_empty() {
            return Ok(());
        }
        let file = match self.file.take().filter(|file| file.path.exists()) {
            Some(file) => file,
            None => EventFile::create(&self.directory)?,
        };
        self.file = Some(file.append(unix_seconds, step, points)?);
        Ok(())
    }
}

impl EventFile {
    fn create(directory: &Path) -> Result<Self, ExportError> {
        std::fs::create_dir_all(directory)
            .map_err(|source| ExportError::CreateDirectory { path: directory.to_path_buf(), source })?;
        let now = unix_seconds(SystemTime::now());
        let (path, file) = new_file(directory, now as u64)?;
        let file = Self { path, file, good_length: 0, holds_events: false, described: HashSet::new() };
        let version =
            Event { wall_time: now, step: 0, what: Some(What::FileVersion(FILE_VERSION.to_owned())) }.encode_to_vec();
        file.append_record(&framed(&version))
    }

    /// Returns the file with the points added; on failure, it is left without an incomplete record.
    fn append(mut self, unix_seconds: f64, step: Step, points: &[Point<'_>]) -> Result<Self, ExportError> {
        let value = points.iter().map(|point| self.value(point)).collect();
        let what = Some(What::Summary(Summary { value }));
        let event = Event { wall_time: unix_seconds, step: step.0.cast_signed(), what };
        let mut file = self.append_record(&framed(&event.encode_to_vec()))?;
        file.holds_events = true;
        Ok(file)
    }

    fn value(&mut self, point: &Point<'_>) -> SummaryValue {
        let (content, plugin, description, data_class) = match &point.value {
            Value::Scalar(number) => (Content::Simple(*number as f32), "scalars", "", 0),
            Value::Histogram(histogram) => {
                (Content::Histogram(histogram.to_message()), "histograms", Histogram::DESCRIPTION, 0)
            }
            Value::Text(text) => (Content::Tensor(TensorMessage::of_text(text)), "text", "", SummaryMetadata::TENSOR),
        };
        let is_new = !self.described.contains(point.tag) && self.described.insert(point.tag.into());
        let metadata = is_new.then(|| SummaryMetadata {
            plugin_data: Some(PluginData { plugin_name: plugin.to_owned() }),
            summary_description: description.to_owned(),
            data_class,
        });
        SummaryValue { tag: point.tag.to_owned(), metadata, content: Some(content) }
    }

    fn append_record(mut self, record: &[u8]) -> Result<Self, ExportError> {
        match self.file.write_all(record) {
            Ok(()) => {
                self.good_length += record.len() as u64;
                Ok(self)
            }
            Err(source) => {
                self.take_back();
                Err(ExportError::Write { path: self.path, source })
            }
        }
    }

    /// Removes an incomplete record, or the whole file if it contains nothing else, so that a full disk does not fill
    /// up with empty files. An error here is ignored in favour of the first one.
    fn take_back(&self) {
        let taken_back =
            if self.holds_events { self.file.set_len(self.good_length) } else { std::fs::remove_file(&self.path) };
        drop(taken_back);
    }
}

/// `events.out.tfevents.<unix seconds>.<host>.<process>.<number>`: readers look for `tfevents` and sort by name.
fn new_file(directory: &Path, now: u64) -> Result<(PathBuf, File), ExportError> {
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    loop {
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("events.out.tfevents.{now:010}.{host}.{}.{number:06}", std::process::id());
        let path = directory.join(name);
        match OpenOptions::new().append(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            // Another process with the same id, on a host with the same name, in the same second.
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(ExportError::Write { path, source }),
        }
    }
}

/// Seconds since 1970; 0 for earlier times.
pub(super) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
