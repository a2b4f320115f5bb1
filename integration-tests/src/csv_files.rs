//! A run's CSV files, read strictly: a torn line or a missing column is an error.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// One file.
#[derive(Clone, Debug)]
pub struct CsvFile {
    /// Where it lies.
    pub path: PathBuf,
    /// The file name's part before the step numbers: the kind of tensor; `steps` for `steps.csv`.
    pub prefix: String,
    /// Cells by column, row by row. Empty for a file without a header: it was made, and nothing could be written.
    pub rows: Vec<BTreeMap<String, String>>,
}

/// All CSV files below a directory.
#[derive(Clone, Debug)]
pub struct CsvTree {
    /// In the order of their paths.
    pub files: Vec<CsvFile>,
}

impl CsvFile {
    /// Reads a file that must consist of complete lines with as many cells as the header.
    ///
    /// # Errors
    /// It does not, or cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(text.is_empty() || text.ends_with('\n'), "{}: the last line is torn: {text:?}", path.display());
        Self::parse(path, &text)
    }

    /// As [`read`](Self::read), but a torn last line is left out.
    ///
    /// # Errors
    /// Another line is not complete.
    pub fn read_whole_lines(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(path, &text[..text.rfind('\n').map_or(0, |end| end + 1)])
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let context = || path.display().to_string();
        let name = path.file_stem().with_context(context)?.to_string_lossy();
        let prefix = match name.rsplit_once('_') {
            Some((prefix, steps)) if steps.contains(|c: char| c.is_ascii_digit()) => prefix.to_owned(),
            _ => name.into_owned(),
        };
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows = reader.deserialize().collect::<Result<_, _>>().with_context(context)?;
        Ok(Self { path: path.to_path_buf(), prefix, rows })
    }
}

impl CsvTree {
    /// Reads every file below `directory` by [`CsvFile::read`]; an absent directory has none.
    ///
    /// # Errors
    /// A file is not whole.
    pub fn read(directory: &Path) -> Result<Self> {
        Self::read_by(directory, CsvFile::read)
    }

    /// Reads every file below `directory` by [`CsvFile::read_whole_lines`].
    ///
    /// # Errors
    /// A line that is not the last of its file is not whole.
    pub fn read_whole_lines(directory: &Path) -> Result<Self> {
        Self::read_by(directory, CsvFile::read_whole_lines)
    }

    fn read_by(directory: &Path, read: fn(&Path) -> Result<CsvFile>) -> Result<Self> {
        let mut paths = Vec::new();
        collect(directory, &mut paths)?;
        paths.sort();
        Ok(Self { files: paths.iter().map(|path| read(path)).collect::<Result<_>>()? })
    }

    /// The steps of `steps.csv` in file order; none if there is no such file.
    ///
    /// # Errors
    /// A step is no number.
    pub fn steps(&self) -> Result<Vec<u64>> {
        let rows = self.files.iter().filter(|file| file.prefix == "steps").flat_map(|file| &file.rows);
        rows.map(step_of).collect()
    }

    /// How many rows each kind of tensor has of each step.
    ///
    /// # Errors
    /// A step is no number.
    pub fn rows_by_kind_and_step(&self) -> Result<BTreeMap<(String, u64), usize>> {
        let mut counts = BTreeMap::new();
        for file in self.tensor_files() {
            for row in &file.rows {
                *counts.entry((file.prefix.clone(), step_of(row)?)).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// Rows about tensors: each is one delivered record.
    pub fn tensor_rows(&self) -> u64 {
        self.tensor_files().map(|file| file.rows.len() as u64).sum()
    }

    fn tensor_files(&self) -> impl Iterator<Item = &CsvFile> {
        self.files.iter().filter(|file| file.prefix != "steps")
    }
}

fn step_of(row: &BTreeMap<String, String>) -> Result<u64> {
    let step = row.get("step").context("a file without the column `step`")?;
    step.parse().with_context(|| format!("step {step:?}"))
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        // The link to the newest run leads to files that are here already.
        if entry.file_type()?.is_symlink() {
            continue;
        }
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "csv") {
            paths.push(path);
        }
    }
    Ok(())
}
