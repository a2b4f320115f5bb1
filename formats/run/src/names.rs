//! The names of a run's files and directories, for writing and reading.

use std::fmt;
use std::path::{Path, PathBuf};

use trainmon_core::Rank;
use trainmon_core::config::{Dialect, TimeTag};

/// The file with one line per step about the run and the monitor; msprobe has no such file.
pub const STEPS_FILE: &str = "steps.csv";
/// The prefix of msprobe's files of call stacks, which contain no numbers.
pub const STACKS: &str = "stack_info";
pub(crate) const STACKS_FILE: &str = "stack_info.csv";
const EXTENSION: &str = ".csv";
/// The suffix of a file that was renamed because its columns differ from those of its replacement.
const SET_ASIDE: &str = ".old";
const RANK: &str = "rank_";

/// The name of a table: `grad_reduced_0-9999.csv` in V1, `weight_grad_step0-99.csv` in V2,
/// `grad_reduced_0-9999.csv.old.2` if it was renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableName<'a> {
    /// The kind of its rows in V1, the monitor in V2.
    pub prefix: &'a str,
    /// The layout of the name.
    pub dialect: Dialect,
    /// The first step that the table may hold.
    pub first: u64,
    /// The last step that the table may hold.
    pub last: u64,
    /// The number of a renamed table, from 1.
    pub set_aside: Option<u32>,
}

impl<'a> TableName<'a> {
    /// Parses the name of a file; `None` if it is not a table.
    pub fn of(path: &'a Path) -> Option<Self> {
        let (stem, rest) = file_name(path).split_once(EXTENSION)?;
        let set_aside = match rest.strip_prefix(SET_ASIDE) {
            None if rest.is_empty() => None,
            None => return None,
            Some("") => Some(1),
            Some(number) => Some(number.strip_prefix('.')?.parse().ok()?),
        };
        let (prefix, steps) = stem.rsplit_once('_')?;
        let (dialect, steps) = match steps.strip_prefix("step") {
            Some(steps) => (Dialect::V2, steps),
            None => (Dialect::V1, steps),
        };
        let (first, last) = steps.split_once('-')?;
        Some(Self { prefix, dialect, first: first.parse().ok()?, last: last.parse().ok()?, set_aside })
    }
}

impl fmt::Display for TableName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, dialect, first, last, set_aside } = self;
        let infix = if *dialect == Dialect::V2 { "step" } else { "" };
        write!(f, "{prefix}_{infix}{first}-{last}{EXTENSION}{}", set_aside.map_or_else(String::new, set_aside_suffix))
    }
}

fn set_aside_suffix(number: u32) -> String {
    if number == 1 { SET_ASIDE.to_owned() } else { format!("{SET_ASIDE}.{number}") }
}

/// An unused name for a file to rename: `x.csv.old`, or `x.csv.old.2` if that is taken.
pub(crate) fn unused_aside(path: &Path) -> PathBuf {
    let named = |number| {
        let mut name = path.as_os_str().to_owned();
        name.push(set_aside_suffix(number));
        PathBuf::from(name)
    };
    (1..u32::MAX).map(named).find(|name| !name.exists()).unwrap_or_else(|| named(1))
}

/// The directory of a rank in the layouts `run` and V2: `rank_3`.
pub fn rank_directory(rank: Rank) -> String {
    format!("{RANK}{rank}")
}

/// Whether a directory has a name as returned by [`rank_directory`].
pub fn is_rank_directory(name: &str) -> bool {
    name.strip_prefix(RANK).is_some_and(|rank| rank.parse::<u32>().is_ok())
}

/// The directory of a run and rank in V1: `Nov20_16-05-09-rank3-1f0a9c42`.
pub fn v1_directory(time: impl fmt::Display, rank: Rank, unique: u32) -> String {
    format!("{time}-rank{rank}-{unique:08x}")
}

/// The time and rank in the name of a V1 directory.
pub fn parse_v1_directory(name: &str) -> Option<(TimeTag, u32)> {
    let (time, rest) = name.split_once("-rank")?;
    let (rank, _unique) = rest.split_once('-')?;
    Some((TimeTag::parse(time).ok()?, rank.parse().ok()?))
}

/// The rank in `Nov20_16-05-09-rank3-1f0a9c42` or `rank_3`.
pub fn rank_of(path: &Path) -> Option<u32> {
    let name = file_name(path);
    match name.strip_prefix(RANK) {
        Some(rank) => rank.parse().ok(),
        None => parse_v1_directory(name).map(|(_, rank)| rank),
    }
}

/// The last part of a path; empty if it is not UTF-8.
pub fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_told_by_its_name_and_called_by_it() {
        let table =
            |prefix, dialect, first, last, set_aside| Some(TableName { prefix, dialect, first, last, set_aside });
        for (name, expected) in [
            ("grad_reduced_0-0.csv", table("grad_reduced", Dialect::V1, 0, 0, None)),
            ("weight_grad_step10-19.csv", table("weight_grad", Dialect::V2, 10, 19, None)),
            ("exp_avg_sq_5-5.csv.old", table("exp_avg_sq", Dialect::V1, 5, 5, Some(1))),
            ("exp_avg_sq_5-5.csv.old.2", table("exp_avg_sq", Dialect::V1, 5, 5, Some(2))),
            (STEPS_FILE, None),
            (STACKS_FILE, None),
            ("grad_reduced_0-0.csv.bak", None),
            ("mon_step-1-0.csv", None),
        ] {
            assert_eq!(TableName::of(Path::new(name)), expected, "{name}");
            if let Some(table) = expected {
                assert_eq!(table.to_string(), name);
            }
        }
    }

    #[test]
    fn a_rank_is_told_by_its_directory() {
        let v1 = v1_directory("Nov20_16-05-09", Rank(3), 0x1f0a);
        assert_eq!(v1, "Nov20_16-05-09-rank3-00001f0a");
        for (name, expected) in
            [(&*v1, Some(3)), (&*rank_directory(Rank(12)), Some(12)), ("tensorboard", None), ("a-rankx-b", None)]
        {
            assert_eq!(rank_of(Path::new(name)), expected, "{name}");
        }
    }
}
