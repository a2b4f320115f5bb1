//! CSV files as tables of text.

use std::path::Path;

/// One CSV file.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) file: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// Every CSV file of a directory, by name.
    pub(crate) fn read_all(directory: &Path) -> Vec<Self> {
        let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().filter(|path| path.extension().is_some_and(|e| e == "csv")).map(|path| Self::read(path)).collect()
    }

    fn read(path: &Path) -> Self {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_path(path).unwrap();
        let mut lines = reader.records().map(|line| line.unwrap().iter().map(str::to_owned).collect::<Vec<String>>());
        let header = lines.next().unwrap();
        Self { file: path.file_name().unwrap().to_string_lossy().into_owned(), header, rows: lines.collect() }
    }

    /// Its name without the steps.
    pub(crate) fn prefix(&self) -> &str {
        self.file.rsplit_once('_').map_or("", |(prefix, _)| prefix)
    }

    pub(crate) fn cell(&self, row: usize, column: &str) -> &str {
        self.header.iter().position(|name| name == column).map_or("", |column| &self.rows[row][column])
    }

    /// What tells a row from the others: everything that is not a statistic.
    pub(crate) fn row_key(&self, row: usize) -> String {
        ["vpp_stage", "step", "name", "module_name", "scope", "micro_step"].map(|c| self.cell(row, c)).join("|")
    }
}
