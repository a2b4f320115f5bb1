//! What files are made of: the rows of a table, whichever it is.

use std::io;
use std::path::PathBuf;

use crate::compat::{self, Cell};
use crate::deviation::Deviation;
use crate::table::{self, Level};

/// A table of either kind, or a piece of one, row by row.
pub(crate) trait Rows: Send + Sync {
    /// How many rows.
    fn count(&self) -> usize;
    /// Shows a row's cells in the order of the columns.
    fn visit(&self, index: usize, see: &mut dyn FnMut(&Cell));
    /// Whether a row says more than `pass`.
    fn is_remarkable(&self, index: usize) -> bool;
    /// What a report wants to know of a row.
    fn facts(&self, index: usize) -> Facts<'_>;
}

/// A row of either kind of table.
pub(crate) struct Facts<'t> {
    /// What both kinds have.
    pub shared: &'t compat::Row,
    /// Its verdict.
    pub level: Level,
    /// How far it is apart; msprobe's table does not say.
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

/// A table cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The system refuses.
    #[error("cannot write `{}`", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Tables go into a directory.
    #[error("`{}` is a file, expected a directory for the tables", path.display())]
    IsFile { path: PathBuf },
    /// The spreadsheet cannot be made.
    #[error("cannot write the spreadsheet `{}`", path.display())]
    Xlsx { path: PathBuf, source: Box<rust_xlsxwriter::XlsxError> },
}
