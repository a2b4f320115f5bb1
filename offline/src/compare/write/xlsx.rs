//! Spreadsheets, a little fewer rows a sheet than the format allows.

use std::any::Any;
use std::cell::Cell as Flag;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Once;

use rust_xlsxwriter::{Workbook, Worksheet, XlsxError};
use trainmon_dump::capture::Plain;

use super::{Rows, WriteError};
use crate::compare::compat::Cell;

const ROWS: usize = 1_048_500;
/// The format's bound for a text.
const LETTERS: usize = 32_767;

pub(super) fn write(table: &dyn Rows, path: &Path) -> Result<(), WriteError> {
    match caught(|| make(table, path)) {
        Ok(made) => made.map_err(|source| WriteError::Xlsx { path: path.to_path_buf(), source: Box::new(source) }),
        Err(panic) => {
            let text = panic.downcast::<String>().map_or_else(|_| "the writer failed".to_owned(), |text| *text);
            Err(WriteError::Io { path: path.to_path_buf(), source: io::Error::other(text) })
        }
    }
}

thread_local! {
    static IS_CAUGHT: Flag<bool> = const { Flag::new(false) };
}

/// The writer of spreadsheets panics where its temporary file cannot grow (a full disk): an error like others. It is not to
/// print a backtrace either, so the panic hook is silent on this thread meanwhile.
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

fn make(table: &dyn Rows, path: &Path) -> Result<(), XlsxError> {
    let mut workbook = Workbook::new();
    // Beside the result: there is room for it there, or for neither.
    if let Some(directory) = path.parent() {
        workbook.set_tempdir(directory)?;
    }
    let sheets = table.count().div_ceil(ROWS).max(1);
    for part in 0..sheets {
        // Rows go to a temporary file as they come: a large table would not fit into memory as a tree of cells.
        let sheet = workbook.add_worksheet_with_constant_memory()?;
        if sheets > 1 {
            sheet.set_name(format!("part_{part}"))?;
        }
        for (column, header) in table.headers().iter().enumerate() {
            sheet.write_string(0, column as u16, *header)?;
        }
        for (line, row) in ((part * ROWS)..((part + 1) * ROWS).min(table.count())).enumerate() {
            let (mut column, mut result) = (0, Ok(()));
            table.visit(row, &mut |cell| {
                if result.is_ok() {
                    result = put(sheet, line as u32 + 1, column, cell);
                }
                column += 1;
            });
            result?;
        }
    }
    workbook.save(path)
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
            // The blank before an infinity is a matter of CSV files.
            let text = other.csv();
            let text = if matches!(other, Cell::Number(_)) { text.trim_start() } else { &text };
            sheet.write_string(row, column, text.chars().take(LETTERS).collect::<String>())?;
        }
    }
    Ok(())
}
