//! The record file: everything captured so far, in the kernel's hands.

use std::io;
use std::path::PathBuf;

use super::super::words::{document, file};
use super::directory::RankDirectory;
use super::error::WriteError;
use super::record::{Frames, MAGIC};
use super::tail::Tail;
use super::text::JsonText;

/// What a capture is of: the documents' first keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// `statistics`, `tensor`, ….
    pub task: String,
    /// `L0`, `L1`, `L2`, `mix`, `debug`.
    pub level: String,
    /// `pytorch`.
    pub framework: String,
    /// Whether `stack.json` and `construct.json` are made.
    pub extra_info: bool,
}

/// In the header, beside the document's own keys.
pub(super) const EXTRA_INFO: &str = "extra_info";

/// A record file that is being written. It holds a lock on it: another process sees that it is in use.
#[derive(Debug)]
pub struct Recorder {
    tail: Tail,
    path: PathBuf,
    is_broken: bool,
}

impl Recorder {
    /// Begins the record file of an unused directory.
    ///
    /// # Errors
    /// The system refuses.
    pub fn create(directory: &RankDirectory, header: &Header) -> Result<Self, WriteError> {
        let path = directory.path().join(file::RECORDS);
        let created = directory.create_new(file::RECORDS)?;
        // A file system that has no locks serves as well; only the warning of a second process is lost.
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

    /// Appends frames: when this returns, they survive the end of the process. Cost: a copy where the file is memory
    /// (tmpfs), else one system call.
    ///
    /// # Errors
    /// The disk is full, or refuses otherwise. What was there before is whole; nothing can be appended any more.
    pub fn append(&mut self, frames: &Frames) -> Result<(), WriteError> {
        self.write(frames.as_bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        if self.is_broken {
            return Err(WriteError::Write {
                path: self.path.clone(),
                source: io::Error::other("it was refused before"),
            });
        }
        self.tail.append(bytes).map_err(|source| {
            self.is_broken = true;
            // Half a frame would end the reading there anyway, and so do zeros: their removal is a courtesy.
            let _cut = self.tail.trim().is_ok();
            WriteError::Write { path: self.path.clone(), source }
        })
    }

    /// Gives back the room that was reserved and not used. More may be appended.
    ///
    /// # Errors
    /// The system refuses.
    pub fn trim(&mut self) -> Result<(), WriteError> {
        self.tail.trim().map_err(|source| WriteError::Write { path: self.path.clone(), source })
    }

    /// Bytes written.
    pub fn length(&self) -> u64 {
        self.tail.length()
    }
}
