//! A monitored run's CSV files, ours or msprobe's: found, and read row by row.

mod error;
mod newest;
mod ranks;
mod rows;
mod source;
mod table;

pub(crate) use self::error::{RanksError, RunError};
pub use self::newest::NewestRun;
pub(crate) use self::newest::run_directory_of;
pub use self::ranks::is_run;
pub(crate) use self::ranks::{Files, RankSource, ranks_in};
pub(crate) use self::rows::{MIXED_PREFIX, MonitorRow, RowLayout};
pub(crate) use self::source::{RunDirectory, file_name, rank_of, runs_in};
pub(crate) use self::table::{Row, Table};
