//! The directory of one run and rank.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use jiff::Zoned;
use trainmon_core::Rank;
use trainmon_core::config::Dialect;

/// The directory of this run and rank below `base`: V1 `Nov20_16-05-09-rank3-1f0a9c42`, V2 `rank_3`.
pub(crate) fn run_directory(base: &Path, dialect: Dialect, rank: Rank, now: &Zoned) -> PathBuf {
    match dialect {
        Dialect::V1 => {
            // Only uniqueness is asked of the eight digits; the hasher's random seed gives it.
            let unique = RandomState::new().hash_one(now.timestamp().as_nanosecond()) as u32;
            base.join(format!("{}-rank{rank}-{unique:08x}", now.strftime("%b%d_%H-%M-%S")))
        }
        Dialect::V2 => base.join(format!("rank_{rank}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_directory_is_what_msprobes_tools_look_for() {
        let now: Zoned = "2026-11-20T16:05:09+00:00[UTC]".parse().unwrap();
        let path = run_directory(Path::new("out"), Dialect::V1, Rank(3), &now);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("Nov20_16-05-09-rank3-"), "{name}");
        assert_eq!(name.len(), "Nov20_16-05-09-rank3-".len() + 8);
        assert_eq!(run_directory(Path::new("out"), Dialect::V2, Rank(3), &now), Path::new("out/rank_3"));
        assert_ne!(path, run_directory(Path::new("out"), Dialect::V1, Rank(3), &now));
    }
}
