//! Logs that other tools wrote, as series of numbers by step.
//!
//! ```text
//! path ─▶ detect: format and file ─▶ formats: rows of named numbers ─▶ columns: which is what ─▶ assemble: Log, by step
//! ```
//!
//! Every name that is guessed can be given instead ([`ColumnNames`]); [`Log`] tells what was taken, what was guessed and what was
//! not read. Memory: all numbers of the log.

#![forbid(unsafe_code)]

mod assemble;
mod columns;
mod detect;
mod error;
mod format;
mod formats;
mod log;
mod paths;
mod picker;
mod raw;
mod roles;
mod spacing;
mod steps;

use std::path::Path;

pub use self::columns::ColumnNames;
pub use self::error::{FORMATS, LogError};
pub use self::format::LogFormat;
pub use self::log::{Log, LogColumns, LogStep, PickedColumn};

/// Reads the log in `path`: a file, or a directory that one of the known tools wrote. Returns `None` for a directory
/// without a log.
///
/// # Errors
/// The path does not exist, a file cannot be read, is damaged from its beginning, is no log or holds no numbers, or a
/// named column does not exist.
pub fn read(path: &Path, names: &ColumnNames) -> Result<Option<Log>, LogError> {
    let Some(found) = detect::find(path)? else { return Ok(None) };
    let (found, raw) = detect::read(found)?;
    assemble::assemble(path, found, &raw, names).map(Some)
}
