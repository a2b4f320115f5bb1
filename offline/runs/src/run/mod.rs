//! A monitored run's files, ours or msprobe's: found, and read row by row (`trainmon-baseline` does).

pub(crate) use trainmon_baseline::run::{
    FileUse, MIXED_PREFIX, MonitorRow, Row, RowLayout, RunDirectory, RunError, Table, TableCursor, ToldNumbers,
    came_again, file_name, rank_of, run_directory_of, runs_in,
};
pub use trainmon_baseline::run::{NewestRun, directories, newest_of};
pub(crate) use trainmon_baseline::{Files, RankSource, ReadRunError as RanksError, ranks_in};
