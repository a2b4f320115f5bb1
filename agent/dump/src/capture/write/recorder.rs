//! The record file: everything captured so far, in the kernel's hands.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

use super::super::words::{document, file};
use super::directory::RankDirectory;
use super::error::WriteError;
use super::record::{Frames, MAGIC};
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
    file: File,
    path: PathBuf,
    length: u64,
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
        let mut recorder = Self { file: created, path, length: 0, is_broken: false };
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

    /// Appends frames: when this returns, they survive the end of the process. Cost: one system call.
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
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.length += bytes.len() as u64;
                Ok(())
            }
            Err(source) => {
                self.is_broken = true;
                // Half a frame would end the reading there anyway: its removal is a courtesy.
                let _cut = self.file.set_len(self.length).is_ok();
                Err(WriteError::Write { path: self.path.clone(), source })
            }
        }
    }

    /// Bytes written.
    pub fn length(&self) -> u64 {
        self.length
    }
}
