//! What these tests share.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use trainmon_capture_files::{
    EntryRecord, Frames, Header, JsonText, Opened, RankDirectory, RankName, Recorder, documents_of,
};

/// Says that a test cannot run here.
pub(crate) fn skip(name: &str, reason: &str) {
    println!("SKIPPED {name}: {reason}");
    if let Some(log) = std::env::var_os("TRAINMON_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{name}: {reason}").unwrap();
    }
}

pub(crate) fn header(level: &str) -> Header {
    let (task, framework) = ("statistics".to_owned(), "pytorch".to_owned());
    Header { task, level: level.to_owned(), framework, extra_info: true }
}

/// A capture in the making in a directory of its own.
pub(crate) struct Capture {
    pub(crate) root: tempfile::TempDir,
    pub(crate) directory: RankDirectory,
    pub(crate) recorder: Recorder,
}

impl Capture {
    pub(crate) fn begin(header: &Header) -> Self {
        let root = tempfile::tempdir().unwrap();
        let Opened { directory, set_aside } = RankDirectory::create(root.path(), 0, RankName::Rank(0)).unwrap();
        assert_eq!(set_aside, None);
        let recorder = Recorder::create(&directory, header).unwrap();
        Self { root, directory, recorder }
    }

    pub(crate) fn frames(&mut self, write: impl FnOnce(&mut Frames)) {
        let mut frames = Frames::new();
        write(&mut frames);
        self.recorder.append(&frames).unwrap();
    }

    pub(crate) fn entry(&mut self, name: &str, parts: &[(&str, &[u8])]) {
        self.frames(|frames| {
            frames.entry(&EntryRecord { name, moves_to_end: false, node: None, stack: None, parts });
        });
    }

    /// The text of a document, made now.
    pub(crate) fn text(&self, name: &str) -> String {
        documents_of(&self.directory).unwrap();
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path()
    }
}

/// JSON of one value.
pub(crate) fn json(write: impl FnOnce(&mut JsonText)) -> Vec<u8> {
    let mut json = JsonText::new();
    write(&mut json);
    json.as_bytes().to_vec()
}

/// Every file of this name below a directory.
pub(crate) fn files_named(directory: &Path, names: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_named(&path, names, found);
        } else if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| names.contains(&name)) {
            found.push(path);
        }
    }
}
