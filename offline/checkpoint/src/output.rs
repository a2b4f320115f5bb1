//! The files of a comparison.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::Value;
use trainmon_report::{NotMade, answer_as_json, write_new};

use super::comparison::Comparison;
use super::error::CheckpointError;
use super::layout::Dialect;
use super::{page, report};

/// msprobe's name for its result.
const MSPROBE_FILE: &str = "ckpt_similarity.json";

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
    fn file_name(self) -> &'static str {
        match self {
            Self::Json => "compare.json",
            Self::Csv => "compare.csv",
            Self::Html => "compare.html",
        }
    }
}

/// Whether a path is that of a file: it is one, or it has the extension of a format.
fn is_file_name(path: &Path) -> bool {
    let is_like = |format: &Format| Path::new(format.file_name()).extension() == path.extension();
    path.is_file() || (Format::value_variants().iter().any(is_like) && !path.is_dir())
}

/// The files and formats of a comparison.
#[derive(Debug)]
pub struct Output {
    files: Vec<(PathBuf, Format)>,
    dialect: Dialect,
}

impl Output {
    /// Determines the files to write to the directory `output`, one per format. msprobe's result is one file, which is
    /// also written without a directory.
    ///
    /// # Errors
    /// A file exists, or `output` is a file or has a file's extension.
    pub fn prepare(output: Option<&Path>, formats: &[Format], dialect: Dialect) -> Result<Self, CheckpointError> {
        if let Some(path) = output.filter(|path| is_file_name(path)) {
            return Err(CheckpointError::OutputIsFile { path: path.to_path_buf() });
        }
        let files: Vec<(PathBuf, Format)> = match (output, dialect) {
            (_, Dialect::Msprobe) => {
                vec![(output.unwrap_or(Path::new("")).join(MSPROBE_FILE), Format::Json)]
            }
            (None, Dialect::Ours) => Vec::new(),
            (Some(directory), Dialect::Ours) => {
                formats.iter().map(|&format| (directory.join(format.file_name()), format)).collect()
            }
        };
        match files.iter().find(|(path, _)| path.exists()) {
            Some((path, _)) => Err(CheckpointError::OutputExists { path: path.clone() }),
            None => Ok(Self { files, dialect }),
        }
    }

    /// Writes the files and returns their paths. Each appears complete or not at all.
    ///
    /// # Errors
    /// A file cannot be written, or was created in the meantime.
    pub fn write(self, comparison: &Comparison) -> Result<Vec<PathBuf>, CheckpointError> {
        for (path, format) in &self.files {
            let failed = |source| CheckpointError::Write { path: path.clone(), source };
            let content = match format {
                _ if self.dialect == Dialect::Msprobe => pretty(&report::msprobe(comparison)).map_err(failed)?,
                Format::Json => pretty(&answer_as_json("checkpoints", report::json(comparison))).map_err(failed)?,
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
