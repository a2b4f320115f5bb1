//! Tables as files.

mod csv;
mod json;
mod markdown;
mod xlsx;

use std::io;
use std::path::{Path, PathBuf};

use super::compat::{self, Cell};
use super::table;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated, a million rows a file.
    Csv,
    /// A spreadsheet.
    Xlsx,
    /// A list of objects.
    Json,
    /// A table of what is no pass, to be pasted.
    Md,
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Xlsx => "xlsx",
            Self::Json => "json",
            Self::Md => "md",
        }
    }
}

/// A table of either kind, row by row.
pub trait Rows: Sync {
    /// The columns.
    fn headers(&self) -> &[&'static str];
    /// How many rows.
    fn count(&self) -> usize;
    /// Shows a row's cells in the order of the columns.
    fn visit(&self, index: usize, see: &mut dyn FnMut(&Cell));
    /// Whether a row says more than `pass`.
    fn is_remarkable(&self, index: usize) -> bool;
}

impl Rows for table::Table {
    fn headers(&self) -> &[&'static str] {
        &self.headers
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    fn visit(&self, index: usize, see: &mut dyn FnMut(&Cell)) {
        self.rows[index].visit(see);
    }

    fn is_remarkable(&self, index: usize) -> bool {
        self.rows[index].level > table::Level::Pass
    }
}

impl Rows for compat::Table {
    fn headers(&self) -> &[&'static str] {
        &self.headers
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    fn visit(&self, index: usize, see: &mut dyn FnMut(&Cell)) {
        self.rows[index].visit(see);
    }

    fn is_remarkable(&self, index: usize) -> bool {
        !self.rows[index].messages.is_empty()
    }
}

/// A table cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The system refuses.
    #[error("cannot write `{}`", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The spreadsheet cannot be made.
    #[error("cannot write the spreadsheet `{}`", path.display())]
    Xlsx {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<rust_xlsxwriter::XlsxError>,
    },
}

/// Writes a table as `<directory>/<stem>.<extension>`, in several files where one would be too long for its readers, and gives
/// their paths.
///
/// # Errors
/// See [`WriteError`].
pub fn write(table: &dyn Rows, format: Format, directory: &Path, stem: &str) -> Result<Vec<PathBuf>, WriteError> {
    let path = directory.join(format!("{stem}.{}", format.extension()));
    match format {
        Format::Csv => return csv::write(table, directory, stem),
        Format::Xlsx => xlsx::write(table, &path)?,
        Format::Json => json::write(table, &path)?,
        Format::Md => markdown::write(table, &path)?,
    }
    Ok(vec![path])
}
