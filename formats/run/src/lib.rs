//! The CSV files of a run, in msprobe's two layouts and with trainmon's own `steps.csv`, for reading and writing.
//!
//! ```text
//! written: columns (which table, its name, its header) ─▶ lines: records as cells ─▶ line_file: appended whole
//! read:    directory: the ranks' tables in order ─▶ table: rows ─▶ rows: the meaning of a row ─▶ cursor: the tables of
//! one prefix
//!          ─▶ rank: all tables, step by step ─▶ readings: cells as the reading that was written
//! ```
//!
//! `names` has the names of files and directories, `kinds` the table and scope of each kind, and `steps` the columns of
//! `steps.csv`. `left_out` handles omitted rows, and `thin` removes steps from a table.

#![forbid(unsafe_code)]

mod columns;
mod cursor;
mod directory;
mod error;
mod file_use;
mod kinds;
mod left_out;
mod line_file;
mod lines;
mod names;
mod number;
mod rank;
mod readings;
mod rows;
mod steps;
mod table;
mod thin;

pub use self::columns::{Columns, FileClass, file_class, first_step, named::STEP as STEP_COLUMN};
pub use self::cursor::ReadRow;
pub use self::directory::{RunDirectory, runs_in};
pub use self::error::{RunError, WriteError};
pub use self::file_use::FileUse;
pub use self::kinds::{is_optimizer, kinds_of, prefixes_of};
pub use self::left_out::{LEFT_OUT_FILE, read_left_out, write_left_out};
pub use self::line_file::LineFile;
pub use self::lines::{Lines, Style};
pub use self::names::{
    STACKS, STEPS_FILE, TableName, file_name, is_rank_directory, parse_v1_directory, rank_directory, rank_of,
    v1_directory,
};
pub use self::rank::{RankFiles, Selection};
pub use self::readings::{NumberColumns, UNKNOWN_ELEMENTS, sizes_of};
pub use self::rows::{MonitorRow, RowLayout};
pub use self::steps::{StepColumn, StepsReader, StepsWriter};
pub use self::table::{LoggedNumbers, Row, Table, widen};
pub use self::thin::{TEMPORARY, interval_of, thin};
