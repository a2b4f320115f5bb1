//! The record file: all captured data so far, written to the operating system.

use std::io;
use std::path::PathBuf;

use super::super::keys::{document, file};
use super::directory::RankDirectory;
use super::error::WriteError;
use super::record::{Frames, MAGIC};
use super::tail::Tail;
use super::text::JsonText;

/// The settings of a capture: the first keys of the documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The task: `statistics`, `tensor`, ….
    pub task: String,
    /// The level: `L0`, `L1`, `L2`, `mix`, `debug`.
    pub level: String,
    /// The framework: `pytorch`.
    pub framework: String,
    /// Whether `stack.json` and `construct.json` are written.
    pub extra_info: bool,
}

/// A key of the header in addition to the document's own keys.
pub(super) const EXTRA_INFO: &str = "extra_info";

/// A record file that is being written. It is locked, so that other processes can detect that it is in use.
#[derive(Debug)]
pub struct Recorder {
    tail: Tail,
    path: PathBuf,
    is_broken: bool,
}

impl Recorder {
    /// Creates the record file of an unused directory.
    ///
    /// # Errors
    /// An I/O error.
    pub fn create(directory: &RankDirectory, header: &Header) -> Result<Self, WriteError> {
        let path = directory.path().join(file::RECORDS);
        let created = directory.create_new(file::RECORDS)?;
        // On a file system without locks, only the check for a second process is lost.
        let _locked = created.try_lock().is_ok();
        let mut recorder = Self { tail: Tail::new(created, true), path, is_broken: false };
        let Header { task, level, framework, extra_info } = header;
        let mut json = JsonText::new();
        json.begin_object();
        for (key, text) in [(document::TASK, task), (document::LEVEL, level), (document::FRAMEWORK, framework)] {
            json.key(key);
            json.text(text);
        }
        json.key(EXTRA_INFO);
        json.bool(*extra_info);
        json.end_object();
        let mut frames = Frames::new();
        frames.header(json.as_bytes());
        recorder.write(&[MAGIC, frames.as_bytes()].concat())?;
        Ok(recorder)
    }

    /// Appends frames: when this returns, they survive the end of the process. Cost: a copy if the file is in memory
    /// (tmpfs), otherwise one system call.
    ///
    /// # Errors
    /// The disk is full, or another I/O error. Earlier frames are intact; nothing more can be appended.
    pub fn append(&mut self, frames: &Frames) -> Result<(), WriteError> {
        self.write(frames.as_bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        if self.is_broken {
            return Err(WriteError::Write {
                path: self.path.clone(),
                source: io::Error::other("an earlier write failed"),
            });
        }
        self.tail.append(bytes).map_err(|source| {
            self.is_broken = true;
            // A reader stops at a partial frame or at zeros anyway, so a failure to remove them does no harm.
            let _cut = self.tail.trim().is_ok();
            WriteError::Write { path: self.path.clone(), source }
        })
    }

    /// Releases the space that was reserved and not used. More may be appended.
    ///
    /// # Errors
    /// An I/O error.
    pub fn trim(&mut self) -> Result<(), WriteError> {
        self.tail.trim().map_err(|source| WriteError::Write { path: self.path.clone(), source })
    }

    /// The number of bytes written.
    pub fn length(&self) -> u64 {
        self.tail.length()
    }
}
