//! A monitored run's CSV files, ours or msprobe's: found, and read row by row.

mod error;
mod newest;
mod rows;
mod source;
mod table;

pub(crate) use self::error::RunError;
pub(crate) use self::newest::run_directory_of;
pub use self::newest::{NewestRun, directories, newest_of};
pub(crate) use self::rows::{MIXED_PREFIX, RowLayout};
pub(crate) use self::source::{RunDirectory, file_name, rank_of, runs_in};
pub(crate) use self::table::{Row, Table};
