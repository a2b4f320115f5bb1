//! Spreadsheets, with slightly fewer rows per sheet than the format allows.

use std::any::Any;
use std::cell::Cell as Flag;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::{Path, PathBuf};
use std::sync::Once;

use rust_xlsxwriter::{Workbook, Worksheet, XlsxError};
use trainmon_capture_files::Plain;

use super::pieces::{Channel, Sink, TableSource, unrendered};
use super::rows::{Rows, WriteError};
use crate::compat::Cell;

const ROWS: usize = 1_048_500;
/// The format's limit for a text.
const LETTERS: usize = 32_767;

pub(super) fn channel<'s>(source: &'s TableSource<'_>, path: &Path) -> Result<Channel<'s>, WriteError> {
    let mut workbook = Workbook::new();
    // Next to the result: there is space for both, or for neither.
    let well = path.parent().map_or(Ok(()), |directory| workbook.set_tempdir(directory).map(|_| ()));
    let sheets = source.count().div_ceil(ROWS).max(1);
    let mut file = XlsxFile { workbook, path: path.to_path_buf(), headers: &source.headers, sheets, begun: 0 };
    well.map_err(|error| file.failed(error))?;
    // A table without rows still has its header.
    file.begin()?;
    Ok((unrendered(), Box::new(file)))
}

/// A spreadsheet whose rows go to a temporary file: as a tree of cells, a large table would not fit into memory.
struct XlsxFile<'s> {
    workbook: Workbook,
    path: PathBuf,
    headers: &'s [&'static str],
    sheets: usize,
    begun: usize,
}

impl XlsxFile<'_> {
    fn begin(&mut self) -> Result<(), WriteError> {
        let (part, sheets, headers) = (self.begun, self.sheets, self.headers);
        self.begun += 1;
        self.caught(|workbook| {
            let sheet = workbook.add_worksheet_with_constant_memory()?;
            if sheets > 1 {
                sheet.set_name(format!("part_{part}"))?;
            }
            for (column, header) in headers.iter().enumerate() {
                sheet.write_string(0, column as u16, *header)?;
            }
            Ok(())
        })
    }

    fn failed(&self, source: XlsxError) -> WriteError {
        WriteError::Xlsx { path: self.path.clone(), source: Box::new(source) }
    }

    fn caught(&mut self, work: impl FnOnce(&mut Workbook) -> Result<(), XlsxError>) -> Result<(), WriteError> {
        match caught(|| work(&mut self.workbook)) {
            Ok(done) => done.map_err(|source| self.failed(source)),
            Err(panic) => {
                let text = panic.downcast::<String>().map_or_else(|_| "the writer failed".to_owned(), |text| *text);
                Err(WriteError::Io { path: self.path.clone(), source: io::Error::other(text) })
            }
        }
    }
}

impl Sink for XlsxFile<'_> {
    fn take(&mut self, rows: &dyn Rows, first: usize, _: &[u8]) -> Result<(), WriteError> {
        let mut index = 0;
        while index < rows.count() {
            let (part, line) = ((first + index) / ROWS, (first + index) % ROWS);
            if part == self.begun {
                self.begin()?;
            }
            let end = rows.count().min(index + ROWS - line);
            self.caught(|workbook| {
                let sheet = workbook.worksheet_from_index(part)?;
                (index..end).zip(line as u32 + 1..).try_for_each(|(index, line)| put_row(sheet, line, rows, index))
            })?;
            index = end;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        let path = self.path.clone();
        self.caught(|workbook| workbook.save(path))
    }
}

thread_local! {
    static IS_CAUGHT: Flag<bool> = const { Flag::new(false) };
}

/// Runs the spreadsheet writer, which panics if its temporary file cannot grow (a full disk), and returns a panic as an error.
/// The panic hook is silent on this thread, so that no backtrace is printed.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                before(panic);
            }
        }));
    });
    IS_CAUGHT.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(false);
    result
}

fn put_row(sheet: &mut Worksheet, line: u32, rows: &dyn Rows, index: usize) -> Result<(), XlsxError> {
    let (mut column, mut result) = (0, Ok(()));
    rows.visit(index, &mut |cell| {
        if result.is_ok() {
            result = put(sheet, line, column, cell);
        }
        column += 1;
    });
    result
}

fn put(sheet: &mut Worksheet, row: u32, column: u16, cell: &Cell) -> Result<(), XlsxError> {
    match cell {
        Cell::Number(Plain::Int(value)) if value.unsigned_abs() < 1 << 53 => {
            sheet.write_number(row, column, *value as f64)?;
        }
        Cell::Number(Plain::Float(value)) if value.is_finite() => {
            sheet.write_number(row, column, *value)?;
        }
        Cell::Bool(value) => {
            sheet.write_boolean(row, column, *value)?;
        }
        other => {
            // The blank before an infinity is only for CSV files.
            let text = other.csv();
            let text = if matches!(other, Cell::Number(_)) { text.trim_start() } else { &text };
            sheet.write_string(row, column, text.chars().take(LETTERS).collect::<String>())?;
        }
    }
    Ok(())
}
