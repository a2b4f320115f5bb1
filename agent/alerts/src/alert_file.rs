//! `alerts.jsonl` in the rank's directory: every alert of the run, one JSON object per line, when it begins and when it
//! ends.
//!
//! A run that ends cleanly adds a last line with the findings by rule, empty if there were none.
//!
//! The file is created at the start of the run. An empty file means no alerts so far; a missing file means that alerts
//! were not recorded. `report`, `plot`, `top` and `replay` read it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crossbeam_channel::Receiver;
use trainmon_core::{ALERTS_FILE, Alert, AlertEnd, AlertRule, AlertTotals};
use trainmon_service::Notices;

use super::delivery::{ClosingQueue, Failed, Message, Notifier, NotifyQueue, QueueSpec};

/// The maximum size of the file, about 20,000 alerts.
const MAX_BYTES: u64 = 16 << 20;

const QUEUE: QueueSpec =
    QueueSpec { thread: "alerts", name: ALERTS_FILE, things: "alerts", messages: 1_024, most: 1_025 };

/// A line of the file.
struct Line {
    text: String,
    /// Whether it is the last one, which is exempt from the size limit.
    is_end: bool,
}

impl Message for Line {
    fn weight(&self) -> u64 {
        1
    }
}

/// The file and its writer thread, so that a hanging disk does not block a step.
pub(crate) struct AlertFile {
    path: PathBuf,
    queue: OnceLock<Option<NotifyQueue<Line>>>,
    totals: Arc<AlertTotals>,
    notices: Notices,
}

impl AlertFile {
    /// Creates the file if the directory already exists; else the first alert creates it.
    pub(crate) fn create(directory: &Path, totals: &Arc<AlertTotals>, notices: &Notices) -> Self {
        let path = directory.join(ALERTS_FILE);
        if directory.is_dir()
            && let Err(error) = OpenOptions::new().append(true).create(true).open(&path)
        {
            notices.warn(format!("cannot write `{}`: {error}", path.display()), None);
        }
        Self { path, queue: OnceLock::new(), totals: Arc::clone(totals), notices: notices.clone() }
    }

    /// Queues an alert without waiting. Returns a message if the queue is full.
    pub(crate) fn send(&self, alert: &Alert) -> Option<String> {
        // An alert contains only numbers and texts, which always serialize.
        let line = serde_json::to_string(alert).ok()?;
        self.queue.get_or_init(|| self.start()).as_ref()?.send(Line { text: line, is_end: false })
    }

    fn start(&self) -> Option<NotifyQueue<Line>> {
        let writer = Writer { path: self.path.clone(), open: None };
        NotifyQueue::open(QUEUE, writer, (&self.totals, &self.notices))
    }

    /// Closes the queue; the rest is written until the deadline.
    pub(crate) fn close(self, deadline: Instant) -> Option<ClosingQueue> {
        let counts = self.totals.snapshot().findings;
        // Also for a resumed run whose alert is ongoing (no alert begins in it), and for a run without alerts: the last
        // line marks a clean end.
        if counts.iter().any(|&count| count > 0) || self.path.exists() {
            self.queue.get_or_init(|| self.start());
        }
        let queue = self.queue.into_inner().flatten()?;
        let findings = AlertRule::ALL.into_iter().zip(counts).filter(|&(_, count)| count > 0).collect();
        if let Ok(line) = serde_json::to_string(&AlertEnd { findings, ended: true })
            && let Some(complaint) = queue.send(Line { text: line, is_end: true })
        {
            self.notices.warn(complaint, None);
        }
        Some(queue.close(deadline))
    }
}

struct Writer {
    path: PathBuf,
    /// The file and its size in bytes.
    open: Option<(File, u64)>,
}

impl Writer {
    fn write(&mut self, Line { text, is_end }: &Line) -> io::Result<bool> {
        if self.open.is_none() {
            if let Some(directory) = self.path.parent() {
                fs::create_dir_all(directory)?;
            }
            let mut file = OpenOptions::new().read(true).append(true).create(true).open(&self.path)?;
            let held = file.metadata()?.len();
            if held > 0 && !ends_whole(&mut file)? {
                // The incomplete line of a killed process stays on a line of its own.
                file.write_all(b"\n")?;
            }
            self.open = Some((file, held));
        }
        let Some((file, held)) = &mut self.open else { return Ok(false) };
        let line = format!("{text}\n");
        if *held + line.len() as u64 > MAX_BYTES && !is_end {
            return Ok(false);
        }
        // One write, so that concurrent readers see whole lines.
        file.write_all(line.as_bytes())?;
        *held += line.len() as u64;
        Ok(true)
    }
}

/// Whether the last byte ends a line.
fn ends_whole(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

impl Notifier for Writer {
    type Message = Line;

    fn deliver(&mut self, line: &Line, _closing: &Receiver<Instant>) -> Result<(), Failed> {
        let written = self.write(line);
        let path = self.path.display();
        match written {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failed {
                what: format!(
                    "`{path}` has reached its limit of {} MiB; further alerts are not recorded",
                    MAX_BYTES >> 20
                ),
                hint: "raise the thresholds of the most frequent rules, or apply them to fewer series",
            }),
            Err(error) => Err(Failed {
                what: format!("cannot write `{path}`: {error}"),
                hint: "check that the directory exists and the disk has space",
            }),
        }
    }
}
