//! Finds the journals of a path, and the output directories of their files.

use std::path::{Path, PathBuf};

use trainmon_baseline::journals_in;
use trainmon_core::Rank;
use trainmon_core::config::Dialect;
use trainmon_run_files::rank_directory;

use super::error::RecoverError;

/// A journal to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalSource {
    pub(super) path: PathBuf,
    place: Place,
}

/// The place of its files in the output.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The output directory itself.
    Top,
    /// A directory of the rank.
    OfRank {
        /// The number of earlier journals with the same place.
        before: usize,
    },
    /// The directory that contained the journal.
    Named {
        /// The directory's name.
        name: PathBuf,
        /// The number of earlier journals with the same place.
        before: usize,
    },
}

impl JournalSource {
    /// The file's length, for the progress.
    pub(super) fn length(&self) -> u64 {
        self.path.metadata().map_or(0, |file| file.len())
    }

    /// The directory of its files below `out`.
    pub(super) fn directory(&self, out: &Path, dialect: Dialect, rank: Rank) -> PathBuf {
        let counted = |name: String, before: usize| match before {
            0 => out.join(name),
            before => out.join(format!("{name}-{}", before + 1)),
        };
        match &self.place {
            Place::Top => out.to_path_buf(),
            Place::Named { name, before } => counted(name.display().to_string(), *before),
            Place::OfRank { before } => match dialect {
                Dialect::V1 => counted(format!("rank{rank}"), *before),
                Dialect::V2 => counted(rank_directory(rank), *before),
            },
        }
    }
}

/// The journal, or those in a directory and its subdirectories, by name.
pub(super) fn sources(path: &Path) -> Result<Vec<JournalSource>, RecoverError> {
    if !path.is_dir() {
        return Ok(vec![JournalSource { path: path.to_path_buf(), place: Place::Top }]);
    }
    let mut found: Vec<JournalSource> = Vec::new();
    for journal in journals_in(path)? {
        let directory = journal.parent().filter(|directory| *directory != path);
        let place = match directory.and_then(Path::file_name) {
            Some(name) => Place::Named {
                name: name.into(),
                before: found.iter().filter(|source| source.path.parent() == directory).count(),
            },
            None => Place::OfRank { before: found.iter().filter(|source| same_rank(&source.path, &journal)).count() },
        };
        found.push(JournalSource { path: journal, place });
    }
    Ok(found)
}

/// `journal_rank0.tmj` and `journal_rank0.2.tmj` belong to one rank.
fn same_rank(one: &Path, other: &Path) -> bool {
    let rank = |path: &Path| path.file_name().and_then(|name| name.to_str()?.split('.').next().map(str::to_owned));
    rank(one) == rank(other)
}
