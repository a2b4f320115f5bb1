//! The rank store in files, in a directory that every rank can access.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::rank_store::RankStore;

/// A longer text was not written by trainmon.
const MAX_BYTES: u64 = 4 << 20;

/// The leader state and rank states as files, each replaced atomically by a rename.
#[derive(Debug)]
pub(super) struct FileRankStore {
    directory: PathBuf,
    /// Makes the names of temporary files unique.
    own_word: String,
}

impl FileRankStore {
    pub(super) fn new(directory: &Path, own_word: &str) -> Self {
        Self { directory: directory.to_path_buf(), own_word: own_word.to_owned() }
    }

    fn sheet_path(&self) -> PathBuf {
        self.directory.join("plan.json")
    }

    fn note_path(&self, rank: u32) -> PathBuf {
        self.directory.join(format!("rank-{rank}.json"))
    }

    fn put(&self, path: &Path, text: &str) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let temporary = self.directory.join(format!(".{}.tmp", self.own_word));
        let mut file = fs::File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        drop(file);
        fs::rename(&temporary, path)
    }
}

/// The text of a file; `None` if it does not exist.
fn read(path: &Path) -> io::Result<Option<String>> {
    use io::Read as _;
    // Opened anew each time, so that a network file system asks its server.
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(Some(text))
}

impl RankStore for FileRankStore {
    fn put_leader_state(&mut self, text: &str) -> io::Result<()> {
        self.put(&self.sheet_path(), text)
    }

    fn leader_state(&mut self) -> io::Result<Option<String>> {
        read(&self.sheet_path())
    }

    fn put_rank_state(&mut self, rank: u32, text: &str) -> io::Result<()> {
        self.put(&self.note_path(rank), text)
    }

    fn rank_state(&mut self, rank: u32) -> io::Result<Option<String>> {
        read(&self.note_path(rank))
    }
}
