//! Reads the tables of ranks from CSV files and spreadsheets.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use calamine::{Data, Reader as _, Xlsx, open_workbook};
use trainmon_core::text_of_cell;

use super::error::MergeError;

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// A number and its text in a CSV file.
    Number(f64, Box<str>),
    /// Any other text.
    Text(Box<str>),
}

impl Default for Cell {
    fn default() -> Self {
        Self::Text("".into())
    }
}

impl Cell {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Number(_, text) | Self::Text(text) => text,
        }
    }

    fn of_text(text: &str) -> Self {
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Self::Number(number, text.into()),
            _ => Self::Text(text.trim_start().into()),
        }
    }

    fn of_sheet(data: &Data) -> Self {
        match data {
            Data::Int(value) => Self::Number(*value as f64, value.to_string().into()),
            Data::Float(value) => Self::Number(*value, value.to_string().into()),
            Data::Bool(value) => Self::Text(if *value { "True" } else { "False" }.into()),
            // msprobe writes some numbers as texts.
            other => Self::of_text(&other.to_string()),
        }
    }
}

/// A rank's table.
pub(super) struct RankTable {
    pub(super) rank: u64,
    pub(super) path: PathBuf,
    pub(super) headers: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl RankTable {
    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.headers.iter().position(|header| header == name)
    }

    pub(super) fn required(&self, name: &str) -> Result<usize, MergeError> {
        self.column(name).ok_or_else(|| MergeError::NoSuchColumn {
            path: self.path.clone(),
            column: name.to_owned(),
            columns: self.headers.join(", "),
        })
    }
}

/// All tables of ranks in a directory, by rank. Of a table in both formats, the CSV file is read; one in several parts (a
/// million rows each) is joined.
pub(super) fn ranks(directory: &Path) -> Result<Vec<RankTable>, MergeError> {
    let failed = |source| MergeError::read(directory, source);
    let mut files: BTreeMap<u64, Vec<(String, u64, PathBuf)>> = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let Some((rank, stem, part)) = rank_of(&path) {
            files.entry(rank).or_default().push((stem, part, path));
        }
    }
    let mut tables = Vec::with_capacity(files.len());
    for (rank, mut files) in files {
        files.sort();
        if let Some([one, other]) = files.windows(2).find(|pair| pair[0].0 != pair[1].0) {
            return Err(MergeError::Twice { rank, first: one.2.clone(), second: other.2.clone() });
        }
        // `csv` sorts before `xlsx`.
        files.dedup_by_key(|(_, part, _)| *part);
        let mut whole: Option<RankTable> = None;
        for (_, _, path) in files {
            let rows = if is_csv(&path) { csv_rows(&path)? } else { sheet_rows(&path)? };
            let mut rows = rows.into_iter();
            let headers = rows.next().unwrap_or_default().iter().map(|cell| cell.text().to_owned()).collect();
            match &mut whole {
                Some(whole) => whole.rows.extend(rows),
                None => whole = Some(RankTable { rank, path, headers, rows: rows.collect() }),
            }
        }
        tables.extend(whole);
    }
    if tables.is_empty() {
        return Err(MergeError::NoTables { path: directory.to_path_buf() });
    }
    Ok(tables)
}

/// Rank, name without extension and part, and the part of `compare_result_rank3_20260102030405_part_1.csv`.
fn rank_of(path: &Path) -> Option<(u64, String, u64)> {
    let extension = path.extension()?;
    if extension != "csv" && extension != "xlsx" {
        return None;
    }
    let stem = path.file_stem()?.to_str()?;
    let (stem, part) = match stem.split_once("_part_") {
        Some((stem, part)) => (stem, part.parse().ok()?),
        None => (stem, 0),
    };
    let rest = stem.strip_prefix("debug_").unwrap_or(stem).strip_prefix("compare_result_rank")?;
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    // `rank0-rank4`: two ranks with different numbers were compared.
    let after = &rest[digits..];
    if !(after.is_empty() || after.starts_with('_') || after.starts_with("-rank")) {
        return None;
    }
    Some((rest[..digits].parse().ok()?, stem.to_owned(), part))
}

fn is_csv(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "csv")
}

fn csv_rows(path: &Path) -> Result<Vec<Vec<Cell>>, MergeError> {
    let failed = |source| MergeError::read(path, source);
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_path(path).map_err(failed)?;
    reader
        .records()
        .map(|row| Ok(row.map_err(failed)?.iter().map(|cell| Cell::of_text(text_of_cell(cell))).collect()))
        .collect()
}

/// All sheets one after the other: each part has the headers.
fn sheet_rows(path: &Path) -> Result<Vec<Vec<Cell>>, MergeError> {
    let failed = |source: calamine::XlsxError| MergeError::read(path, source);
    let mut workbook: Xlsx<_> = open_workbook(path).map_err(failed)?;
    let mut rows = Vec::new();
    for sheet in workbook.sheet_names() {
        let range = workbook.worksheet_range(&sheet).map_err(failed)?;
        let from = usize::from(!rows.is_empty());
        rows.extend(range.rows().skip(from).map(|row| row.iter().map(Cell::of_sheet).collect::<Vec<_>>()));
    }
    Ok(rows)
}
