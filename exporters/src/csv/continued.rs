//! Finds the run that a rank continues, if the config requests that.

use std::io;
use std::path::{Path, PathBuf};

use trainmon_core::Rank;
use trainmon_core::config::{TimeTag, TimeWindow};
use trainmon_run_files::parse_v1_directory;

/// This rank's newest V1 run directory in `base` that was created within `window`. Its name contains the time; of two
/// created in the same second, the one written to last.
pub(super) fn run_to_continue(base: &Path, rank: Rank, window: TimeWindow) -> io::Result<Option<PathBuf>> {
    let entries = match std::fs::read_dir(base) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut newest = None;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let made = name.to_str().and_then(parse_v1_directory);
        let is_meant = |&(made, of): &(TimeTag, u32)| of == rank.0 && window.contains(made) && entry.path().is_dir();
        if let Some((made, _)) = made.filter(is_meant) {
            newest = newest.max(Some((made, entry.metadata()?.modified()?, entry.path())));
        }
    }
    Ok(newest.map(|(.., path)| path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_run_of_this_rank_in_the_window_is_continued() {
        let base = tempfile::tempdir().unwrap();
        let window = |first: &str, last: &str| TimeWindow {
            first: TimeTag::parse(first).unwrap(),
            last: TimeTag::parse(last).unwrap(),
        };
        let found = |window| {
            let path = run_to_continue(base.path(), Rank(1), window).unwrap()?;
            Some(path.file_name().unwrap().to_str().unwrap().to_owned())
        };
        for name in [
            "Nov20_16-05-09-rank1-00000001",
            "Nov20_16-05-10-rank1-00000002",
            "Nov20_16-05-11-rank0-00000003",
            "Nov20_16-05-11-rank11-00000004",
            "Nov20_16-05-12-rank1-00000005",
            "notes-rank1-x",
        ] {
            std::fs::create_dir(base.path().join(name)).unwrap();
        }
        std::fs::write(base.path().join("Nov20_16-05-11-rank1-00000006"), "a file").unwrap();
        let wide = window("Nov20_16-05-09", "Nov20_16-05-11");
        assert_eq!(found(wide).as_deref(), Some("Nov20_16-05-10-rank1-00000002"));
        assert_eq!(found(window("Nov20_16-05-13", "Nov20_16-05-14")), None);
        let nowhere = run_to_continue(&base.path().join("nowhere"), Rank(1), wide);
        assert_eq!(nowhere.unwrap(), None);
    }
}
