//! Writes tables as files.

mod csv;
mod json;
mod markdown;
mod pieces;
mod rows;
mod xlsx;

use std::path::{Path, PathBuf};

pub(crate) use pieces::{Channel, Render, Sink, TableSource};
pub(crate) use rows::WriteError;
pub(crate) use rows::{Facts, Rows};

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated, a million rows per file
    Csv,
    /// A spreadsheet.
    Xlsx,
    /// A list of objects.
    Json,
    /// Table of the values that do not pass, for a ticket
    Md,
    /// One report of the whole comparison, for a browser
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

/// Writes a table as `<directory>/<stem>.<extension>`, split into several files if one would be too long for its readers, and
/// returns their paths. A report needs several tables: its rows go to `others`.
///
/// # Errors
/// See [`WriteError`].
pub(crate) fn write<'s>(
    source: &'s TableSource<'_>,
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
