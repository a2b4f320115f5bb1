//! A file that grows by whole lines only.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::ExportError;

/// An append-only file of complete lines: what is in it survives SIGKILL, and a full disk leaves no torn line.
#[derive(Debug)]
pub(super) struct LineFile {
    path: PathBuf,
    file: File,
    good_length: u64,
}

impl LineFile {
    /// Opens or makes the file; a new one starts with `header`.
    pub(super) fn open(path: PathBuf, header: &[u8]) -> Result<Self, ExportError> {
        let failed = |source| ExportError::Write { path: path.clone(), source };
        let file = OpenOptions::new().append(true).create(true).open(&path).map_err(failed)?;
        let good_length = file.metadata().map_err(failed)?.len();
        let mut lines = Self { path, file, good_length };
        if lines.good_length == 0 {
            lines.append(header)?;
        }
        Ok(lines)
    }

    /// Appends complete lines with one write, so that a kill between writes tears none. If the disk is full, the part
    /// that was written is taken back.
    pub(super) fn append(&mut self, lines: &[u8]) -> Result<(), ExportError> {
        match self.file.write_all(lines) {
            Ok(()) => {
                self.good_length += lines.len() as u64;
                Ok(())
            }
            Err(source) => {
                // Taking back the torn part can itself fail; the error that matters is the first.
                let _torn_tail_stays = self.file.set_len(self.good_length);
                Err(ExportError::Write { path: self.path.clone(), source })
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a directory and its parents.
pub(super) fn create_directory(path: &Path) -> Result<(), ExportError> {
    std::fs::create_dir_all(path)
        .map_err(|source: io::Error| ExportError::CreateDirectory { path: path.to_path_buf(), source })
}
