//! `alerts.jsonl` in the rank's directory: every alert of the run, one JSON object a line, when it begins and when it is over.
//!
//! A run that ends in order adds a last line with the findings by rule, empty where there were none.
//!
//! The file is made with the run. An empty file says that there was no alert so far; without a file nobody knows. What looks at a run later (`report`, `plot`, `top`, `replay`) reads it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crossbeam_channel::Receiver;
use trainmon_core::{ALERTS_FILE, Alert, AlertEnd, AlertRule, AlertTotals};
use trainmon_service::Notices;

use super::delivery::{ClosingQueue, Failed, Message, Notifier, NotifyQueue, QueueSpec};

/// What the file may hold: some twenty thousand alerts.
const MAX_BYTES: u64 = 16 << 20;

const QUEUE: QueueSpec =
    QueueSpec { thread: "alerts", name: ALERTS_FILE, things: "alerts", messages: 1_024, most: 1_025 };

/// A line of the file.
struct Line {
    text: String,
    /// Whether it is the last one, for which there is always room.
    is_end: bool,
}

impl Message for Line {
    fn weight(&self) -> u64 {
        1
    }
}

/// The file, and the thread that writes it, from the first alert on: a disk that hangs holds no step up.
pub(crate) struct AlertFile {
    path: PathBuf,
    queue: OnceLock<Option<NotifyQueue<Line>>>,
    book: Arc<AlertTotals>,
    notices: Notices,
}

impl AlertFile {
    /// Makes the file, where the directory is there already; else it comes with the first alert.
    pub(crate) fn create(directory: &Path, book: &Arc<AlertTotals>, notices: &Notices) -> Self {
        let path = directory.join(ALERTS_FILE);
        if directory.is_dir()
            && let Err(error) = OpenOptions::new().append(true).create(true).open(&path)
        {
            notices.warn(format!("cannot write `{}`: {error}", path.display()), None);
        }
        Self { path, queue: OnceLock::new(), book: Arc::clone(book), notices: notices.clone() }
    }

    /// Hands an alert over without waiting; what is to be said of that.
    pub(crate) fn send(&self, alert: &Alert) -> Option<String> {
        // An alert has numbers and texts only: nothing JSON could refuse.
        let line = serde_json::to_string(alert).ok()?;
        self.queue.get_or_init(|| self.start()).as_ref()?.send(Line { text: line, is_end: false })
    }

    fn start(&self) -> Option<NotifyQueue<Line>> {
        let writer = Writer { path: self.path.clone(), open: None };
        NotifyQueue::open(QUEUE, writer, (&self.book, &self.notices))
    }

    /// Says that nothing more comes, and until when the rest may take.
    pub(crate) fn close(self, deadline: Instant) -> Option<ClosingQueue> {
        let counts = self.book.snapshot().findings;
        // Also of a resumed run whose alert goes on: none begins in it. And of a run without any alert: its last line says that it
        // ended in order.
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
    /// The file, and the bytes in it.
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
                // What a killed process left stays a line of its own.
                file.write_all(b"\n")?;
            }
            self.open = Some((file, held));
        }
        let Some((file, held)) = &mut self.open else { return Ok(false) };
        let line = format!("{text}\n");
        if *held + line.len() as u64 > MAX_BYTES && !is_end {
            return Ok(false);
        }
        // In one call: whoever reads meanwhile sees whole lines.
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
                what: format!("`{path}` holds {} MiB of alerts; no more are written", MAX_BYTES >> 20),
                hint: "raise the thresholds of the rules that speak most, or give them fewer series",
            }),
            Err(error) => Err(Failed {
                what: format!("cannot write `{path}`: {error}"),
                hint: "is the disk full, or the directory gone?",
            }),
        }
    }
}
