//! The rows of a table of either kind, for files.

use std::io;
use std::path::PathBuf;

use crate::compat::{self, Cell};
use crate::deviation::Deviation;
use crate::table::{self, Level};

/// A table of either kind, or a piece of one, row by row.
pub(crate) trait Rows: Send + Sync {
    /// The number of rows.
    fn count(&self) -> usize;
    /// Passes a row's cells to `see` in the order of the columns.
    fn visit(&self, index: usize, see: &mut dyn FnMut(&Cell));
    /// Whether a row is more than `pass`.
    fn is_remarkable(&self, index: usize) -> bool;
    /// The facts of a row for a report.
    fn facts(&self, index: usize) -> Facts<'_>;
}

/// A row of either kind of table.
pub(crate) struct Facts<'t> {
    /// The cells that both kinds have.
    pub shared: &'t compat::Row,
    /// The result.
    pub level: Level,
    /// The difference; `None` in msprobe's table.
    pub deviation: Option<Deviation>,
}

impl Rows for table::Table {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn visit(&self, index: usize, see: &mut dyn FnMut(&Cell)) {
        self.rows[index].visit(see);
    }

    fn is_remarkable(&self, index: usize) -> bool {
        self.rows[index].level > Level::Pass
    }

    fn facts(&self, index: usize) -> Facts<'_> {
        let table::Row { shared, level, deviation, .. } = &self.rows[index];
        Facts { shared, level: *level, deviation: Some(*deviation) }
    }
}

impl Rows for compat::Table {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn visit(&self, index: usize, see: &mut dyn FnMut(&Cell)) {
        self.rows[index].visit(see);
    }

    fn is_remarkable(&self, index: usize) -> bool {
        !self.rows[index].messages.is_empty()
    }

    fn facts(&self, index: usize) -> Facts<'_> {
        let shared = &self.rows[index];
        let level = match shared.result() {
            "error" => Level::Error,
            "warning" => Level::Warning,
            _ => Level::Pass,
        };
        Facts { shared, level, deviation: None }
    }
}

/// An error of writing a table.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file or directory cannot be written.
    #[error("cannot write `{}`", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The output is a file.
    #[error("`{}` is a file, not a directory", path.display())]
    IsFile { path: PathBuf },
    /// The spreadsheet writer failed.
    #[error("cannot write the spreadsheet `{}`", path.display())]
    Xlsx { path: PathBuf, source: Box<rust_xlsxwriter::XlsxError> },
}
