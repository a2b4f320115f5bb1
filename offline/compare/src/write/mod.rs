//! Tables as files.

mod csv;
mod json;
mod markdown;
mod pieces;
mod xlsx;

use std::io;
use std::path::{Path, PathBuf};

use super::compat::{self, Cell};
use super::deviation::Deviation;
use super::table::{self, Level};

pub use pieces::{Channel, Make, Render, Sink, Source};

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
    /// One report of the whole comparison, for a browser.
    Html,
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Xlsx => "xlsx",
            Self::Json => "json",
            Self::Md => "md",
            Self::Html => "html",
        }
    }
}

/// A table of either kind, or a piece of one, row by row.
pub trait Rows: Send + Sync {
    /// The columns.
    fn headers(&self) -> &[&'static str];
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
pub struct Facts<'t> {
    /// What both kinds have.
    pub shared: &'t compat::Row,
    /// Its verdict.
    pub level: Level,
    /// How far it is apart; msprobe's table does not say.
    pub deviation: Option<Deviation>,
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
        self.rows[index].level > Level::Pass
    }

    fn facts(&self, index: usize) -> Facts<'_> {
        let table::Row { shared, level, deviation, .. } = &self.rows[index];
        Facts { shared, level: *level, deviation: Some(*deviation) }
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
/// their paths. A report is not made of a single table: who makes one is given the rows as `others`.
///
/// # Errors
/// See [`WriteError`].
pub fn write<'s>(
    source: &'s Source<'_>,
    formats: &[Format],
    directory: &Path,
    stem: &str,
    others: impl IntoIterator<Item = Channel<'s>>,
) -> Result<Vec<PathBuf>, WriteError> {
    let mut channels: Vec<Channel<'s>> = others.into_iter().collect();
    let mut paths = Vec::new();
    for format in formats {
        let path = directory.join(format!("{stem}.{}", format.extension()));
        channels.push(match format {
            Format::Csv => {
                let (channel, parts) = csv::channel(source, directory, stem)?;
                paths.extend(parts);
                channels.push(channel);
                continue;
            }
            Format::Xlsx => xlsx::channel(source, &path)?,
            Format::Json => json::channel(source, &path)?,
            Format::Md => markdown::channel(source, &path),
            Format::Html => continue,
        });
        paths.push(path);
    }
    pieces::run(source, channels)?;
    Ok(paths)
}

/// What does not need to be rendered beforehand.
fn unrendered<'t>() -> Render<'t> {
    Box::new(|_, _, _| {})
}
