//! A monitored run's CSV files, ours or msprobe's: found, and read row by row.

mod cursor;
mod error;
mod file;
mod newest;
mod rows;
mod source;
mod table;

pub use self::cursor::{TableCursor, came_again};
pub use self::error::RunError;
pub use self::file::FileUse;
pub use self::newest::{NewestRun, directories, newest_of, run_directory_of};
pub use self::rows::{MIXED_PREFIX, MonitorRow, RowLayout};
pub use self::source::{RunDirectory, file_name, rank_of, runs_in};
pub use self::table::{Row, Table, ToldNumbers};
