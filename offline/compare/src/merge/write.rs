//! Writes merged tables as files that appear together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rust_xlsxwriter::{Workbook, XlsxError};
use trainmon_core::cell_of;
use trainmon_report::unfinished_in;

use super::error::MergeError;
use super::read::Cell;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A spreadsheet with a sheet per column.
    Xlsx,
    /// A file per column.
    Csv,
}

/// One column for all ranks.
pub(super) struct Merged {
    pub(super) column: String,
    /// By name, in alphabetical order; a rank without the value has an empty cell.
    pub(super) rows: BTreeMap<String, Vec<Option<Cell>>>,
}

/// The length limit of a sheet's name.
const SHEET_LETTERS: usize = 31;

pub(super) fn write(
    directory: &Path,
    ranks: &[u64],
    tables: &[Merged],
    formats: &[Format],
) -> Result<Vec<PathBuf>, MergeError> {
    let failed = |source| MergeError::write(directory, source);
    std::fs::create_dir_all(directory).map_err(failed)?;
    let aside = unfinished_in(directory).map_err(failed)?;
    let stem = format!("multi_ranks_compare_merge_{}", jiff::Zoned::now().strftime("%Y%m%d%H%M%S"));
    let mut names = Vec::new();
    if formats.contains(&Format::Xlsx) {
        let name = format!("{stem}.xlsx");
        let path = aside.path().join(&name);
        sheets(&path, ranks, tables).map_err(|source| MergeError::Write { path, source: source.into() })?;
        names.push(name);
    }
    if formats.contains(&Format::Csv) {
        for table in tables {
            let name = format!("{stem}_{}.csv", table.column.replace(|letter: char| !letter.is_alphanumeric(), "_"));
            let path = aside.path().join(&name);
            lines(&path, ranks, table).map_err(|source| MergeError::Write { path, source: source.into() })?;
            names.push(name);
        }
    }
    let names: Vec<PathBuf> = names.into_iter().map(PathBuf::from).collect();
    aside.put_in_place(&names, directory).map_err(|(path, source)| MergeError::write(&path, source))
}

fn headers(ranks: &[u64]) -> impl Iterator<Item = String> {
    std::iter::once("NPU Name".to_owned()).chain(ranks.iter().map(|rank| format!("rank{rank}")))
}

fn sheets(path: &Path, ranks: &[u64], tables: &[Merged]) -> Result<(), XlsxError> {
    let mut workbook = Workbook::new();
    for table in tables {
        let sheet = workbook.add_worksheet();
        let is_forbidden = |letter| matches!(letter, '[' | ']' | ':' | '*' | '?' | '/' | '\\');
        sheet.set_name(table.column.replace(is_forbidden, "_").chars().take(SHEET_LETTERS).collect::<String>())?;
        for (column, header) in headers(ranks).enumerate() {
            sheet.write_string(0, column as u16, header)?;
        }
        // Among percentages, which are texts, a bare 0 is a percentage too.
        let of_texts = table.rows.values().flatten().flatten().any(|cell| cell.text().ends_with('%'));
        for (row, (name, cells)) in table.rows.iter().enumerate() {
            let row = row as u32 + 1;
            sheet.write_string(row, 0, name)?;
            for (column, cell) in cells.iter().enumerate() {
                let column = column as u16 + 1;
                match cell {
                    Some(Cell::Number(number, _)) if !of_texts => sheet.write_number(row, column, *number)?,
                    Some(cell) => sheet.write_string(row, column, cell.text())?,
                    None => continue,
                };
            }
        }
    }
    workbook.save(path)
}

fn lines(path: &Path, ranks: &[u64], table: &Merged) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_path(path)?;
    writer.write_record(headers(ranks))?;
    for (name, cells) in &table.rows {
        let cells = cells.iter().map(|cell| cell.as_ref().map_or("", Cell::text));
        writer.write_record(std::iter::once(name.as_str()).chain(cells).map(|cell| cell_of(cell).into_owned()))?;
    }
    Ok(writer.flush()?)
}
