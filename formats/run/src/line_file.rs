//! A file that grows only by whole lines.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};

use trainmon_core::end_of_last_line;

use crate::error::WriteError;
use crate::names::unused_aside;

/// An append-only file of complete lines. Its content survives SIGKILL, and a full disk leaves no partial line. A kill
/// during a write may cut it at a page boundary; the partial last line is removed when the file is next opened.
#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    header: Vec<u8>,
    file: File,
    good_length: u64,
}

impl LineFile {
    /// Opens or creates the file and its directory; a new file starts with `header`. A file with other columns is
    /// renamed, not mixed with ours.
    ///
    /// # Errors
    /// The file or its directory cannot be created or written.
    pub fn open(path: PathBuf, header: &[u8]) -> Result<Self, WriteError> {
        if let Some(directory) = path.parent() {
            create_directory(directory)?;
        }
        Self::open_whole(&path, header)
            .and_then(|(file, good_length)| {
                let mut lines = Self { path: path.clone(), header: header.to_vec(), file, good_length };
                if lines.good_length == 0 {
                    lines.append_raw(header)?;
                }
                Ok(lines)
            })
            .map_err(|source| WriteError::Write { path, source })
    }

    /// Opens the file, removes a partial last line, and returns its length.
    fn open_whole(path: &Path, header: &[u8]) -> io::Result<(File, u64)> {
        let open = || OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = open()?;
        let mut length = file.metadata()?.len();
        if length > 0 && !begins_with(&file, header)? {
            std::fs::rename(path, unused_aside(path))?;
            file = open()?;
            length = 0;
        }
        let whole = end_of_last_line(&mut file, u64::MAX)?.unwrap_or(0);
        if whole < length {
            file.set_len(whole)?;
        }
        Ok((file, whole))
    }

    /// Appends complete lines with one write, so that a kill between writes leaves no partial line. If the disk is
    /// full, the written part is removed.
    ///
    /// # Errors
    /// The lines were not written.
    pub fn append(&mut self, lines: &[u8]) -> Result<(), WriteError> {
        self.append_raw(lines).map_err(|source| WriteError::Write { path: self.path.clone(), source })
    }

    fn append_raw(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(lines);
        match &written {
            Ok(()) => self.good_length += lines.len() as u64,
            // Removing the partial write can fail too; only the first error matters.
            Err(_) => drop(self.file.set_len(self.good_length)),
        }
        written
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the path after the file was moved.
    pub fn move_to(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// Whether this is the file at `path` with these columns. A file that was deleted is not: its rows would be lost.
    pub fn continues(&self, path: &Path, header: &[u8]) -> bool {
        self.path == path && self.header == header && path.exists()
    }
}

fn begins_with(file: &File, header: &[u8]) -> io::Result<bool> {
    let mut first = Vec::new();
    BufReader::new(file.take(header.len() as u64)).read_until(b'\n', &mut first)?;
    Ok(first == header)
}

/// Creates a directory and its parents.
fn create_directory(path: &Path) -> Result<(), WriteError> {
    std::fs::create_dir_all(path)
        .map_err(|source: io::Error| WriteError::CreateDirectory { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8] = b"name,norm\n";

    fn content_after_reopening(before: &[u8]) -> (String, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("grad.csv");
        std::fs::write(&path, before).unwrap();
        LineFile::open(path.clone(), HEADER).unwrap().append(b"new,2\n").unwrap();
        (std::fs::read_to_string(path).unwrap(), directory)
    }

    #[test]
    fn a_file_is_continued_and_its_header_written_once() {
        assert_eq!(content_after_reopening(b"").0, "name,norm\nnew,2\n");
        assert_eq!(content_after_reopening(b"name,norm\na,1\n").0, "name,norm\na,1\nnew,2\n");
    }

    #[test]
    fn a_torn_last_line_is_taken_off_and_every_whole_one_kept() {
        assert_eq!(content_after_reopening(b"name,norm\na,1\nb,").0, "name,norm\na,1\nnew,2\n");
        let long = [b"name,norm\na,1\n".as_slice(), &vec![b'x'; 200_000]].concat();
        assert_eq!(content_after_reopening(&long).0, "name,norm\na,1\nnew,2\n");
    }

    #[test]
    fn a_file_of_other_columns_is_set_aside_whole() {
        let (content, directory) = content_after_reopening(b"name,max\na,1\n");
        assert_eq!(content, "name,norm\nnew,2\n");
        let old = std::fs::read_to_string(directory.path().join("grad.csv.old")).unwrap();
        assert_eq!(old, "name,max\na,1\n");
    }

    #[test]
    fn a_torn_header_is_written_anew() {
        let (content, _directory) = content_after_reopening(b"name,no");
        assert_eq!(content, "name,norm\nnew,2\n");
    }
}
