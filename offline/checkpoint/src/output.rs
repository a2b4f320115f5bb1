//! The files of a comparison.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::Value;
use trainmon_report::{NotMade, write_new};

use super::comparison::Comparison;
use super::error::CheckpointError;
use super::layout::Dialect;
use super::{page, report};

/// msprobe's name for its result.
pub const MSPROBE_FILE: &str = "ckpt_similarity.json";

/// A format of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Everything
    Json,
    /// A row per tensor
    Csv,
    /// One page for a browser
    Html,
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Html => "html",
        }
    }
}

/// Where a comparison goes, and as what.
#[derive(Debug)]
pub struct Output {
    files: Vec<(PathBuf, Format)>,
    dialect: Dialect,
}

impl Output {
    /// The files to write: without formats the one the name's ending says, else JSON; with several their endings are put to
    /// the name. msprobe's result has a name where none is given.
    ///
    /// # Errors
    /// One of them is there already.
    pub fn prepare(output: Option<&Path>, formats: &[Format], dialect: Dialect) -> Result<Self, CheckpointError> {
        let files = match (output, formats) {
            (None, _) if dialect == Dialect::Msprobe => vec![(PathBuf::from(MSPROBE_FILE), Format::Json)],
            (None, _) => Vec::new(),
            (Some(path), []) => {
                let has_ending = |format: &Format| path.extension().is_some_and(|ending| ending == format.ending());
                let format = [Format::Csv, Format::Html].into_iter().find(has_ending).unwrap_or(Format::Json);
                vec![(path.to_path_buf(), format)]
            }
            (Some(path), &[format]) => vec![(path.to_path_buf(), format)],
            (Some(path), formats) => {
                formats.iter().map(|&format| (path.with_extension(format.ending()), format)).collect()
            }
        };
        match files.iter().find(|(path, _)| path.exists()) {
            Some((path, _)) => Err(CheckpointError::OutputExists { path: path.clone() }),
            None => Ok(Self { files, dialect }),
        }
    }

    /// Writes them and names them. Each appears whole or not at all.
    ///
    /// # Errors
    /// A file cannot be written, or came into being meanwhile.
    pub fn write(self, comparison: &Comparison) -> Result<Vec<PathBuf>, CheckpointError> {
        for (path, format) in &self.files {
            let failed = |source| CheckpointError::Write { path: path.clone(), source };
            let content = match format {
                _ if self.dialect == Dialect::Msprobe => pretty(&report::msprobe(comparison)).map_err(failed)?,
                Format::Json => pretty(&report::json(comparison)).map_err(failed)?,
                Format::Csv => report::csv(comparison).map_err(|error| failed(error.into()))?,
                Format::Html => page::html(comparison).into_bytes(),
            };
            write_new(path, |file| file.write_all(&content)).map_err(|error| match error {
                NotMade::Exists => CheckpointError::OutputExists { path: path.clone() },
                NotMade::Failed(source) => failed(source),
            })?;
        }
        Ok(self.files.into_iter().map(|(path, _)| path).collect())
    }
}

fn pretty(value: &Value) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}
