//! Limits the number of files that earlier runs left in a directory.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trainmon_core::Rank;

use super::layout::file_number;
use super::medium::is_in_use;

/// The result of [`prune`].
#[derive(Debug, Default)]
pub struct Pruned {
    /// Removed files, oldest first.
    pub removed: Vec<PathBuf>,
    /// Files that could not be removed, with the error. A file that a process has open is not a failure.
    pub failed: Vec<(PathBuf, io::Error)>,
}

/// Removes the oldest journals of a rank in a directory until `keep` are left. A file that a live process writes stays,
/// and so does one on a file system without locks, where this cannot be determined. A missing or unreadable directory
/// counts as empty.
pub fn prune(directory: &Path, rank: Rank, keep: usize) -> Pruned {
    remove_oldest(earlier_journals(directory, rank).into_iter().map(|(_, path)| path).collect(), keep)
}

/// As [`prune`], for journals in the rank's directories (`rank_3`) inside the run directories in `base`.
pub fn prune_runs(base: &Path, rank: Rank, keep: usize) -> Pruned {
    let runs = std::fs::read_dir(base).into_iter().flatten().filter_map(Result::ok);
    // A link points to one of the other directories.
    let runs = runs.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let journals = runs.flat_map(|run| earlier_journals(&run.path().join(format!("rank_{rank}")), rank));
    let mut dated: Vec<(SystemTime, u32, PathBuf)> = journals
        .filter_map(|(number, path)| Some((path.metadata().and_then(|file| file.modified()).ok()?, number, path)))
        .collect();
    dated.sort_unstable();
    remove_oldest(dated.into_iter().map(|(.., path)| path).collect(), keep)
}

fn remove_oldest(mut earlier: Vec<PathBuf>, keep: usize) -> Pruned {
    let mut pruned = Pruned::default();
    earlier.truncate(earlier.len().saturating_sub(keep));
    for path in earlier {
        match is_in_use(&path)
            .and_then(|in_use| if in_use { Ok(false) } else { std::fs::remove_file(&path).map(|()| true) })
        {
            Ok(true) => pruned.removed.push(path),
            Ok(false) => {}
            Err(error) => pruned.failed.push((path, error)),
        }
    }
    pruned
}

/// The journals of a rank in a directory with their numbers, oldest first.
pub(super) fn earlier_journals(directory: &Path, rank: Rank) -> Vec<(u32, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((file_number(rank, entry.file_name().to_str()?)?, entry.path())))
        .filter(|(_, path)| path.is_file())
        .collect();
    found.sort_unstable();
    found
}
