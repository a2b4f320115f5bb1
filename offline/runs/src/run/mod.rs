//! A monitored run's CSV files, ours or msprobe's: found, and read row by row.

mod error;
mod rows;
mod source;
mod table;

pub(crate) use self::error::RunError;
pub(crate) use self::rows::RowLayout;
pub(crate) use self::source::{RunDirectory, rank_of, runs_in};
pub(crate) use self::table::{Row, Table};

/// The file into which msprobe's V1 also writes its collectives, in rows longer than the header.
pub(crate) const MIXED_PREFIX: &str = "other";
