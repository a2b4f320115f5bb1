//! A monitored run's CSV files, ours or msprobe's: found, and read row by row (`trainmon-baseline` does).

pub use trainmon_baseline::run::{NewestRun, directories, newest_of};
pub(crate) use trainmon_baseline::run::{
    MIXED_PREFIX, Row, RowLayout, RunDirectory, RunError, Table, rank_of, run_directory_of, runs_in,
};
