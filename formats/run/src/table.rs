//! Reads a CSV file row by row.

use std::fs::File;
use std::io::{self, BufRead as _, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use csv::StringRecord;
use trainmon_core::{end_of_last_line, text_of_cell};

use crate::error::RunError;
use crate::file_use::{FileUse, TableFile};

/// The longest line. A sparse file or one of another kind may be a single line of any length.
const MAX_LINE: u64 = 16 << 20;
/// The buffer size of a reopened file: opening takes as long as reading a few kilobytes, and the tables of a thousand
/// ranks are read together.
const REOPENED_BUFFER: usize = 16 << 10;

/// A file of complete lines, with its header read.
pub struct Table {
    path: PathBuf,
    header: StringRecord,
    /// The row that was read last.
    cells: StringRecord,
    rows: csv::Reader<ShortLines<io::Take<TableFile>>>,
    /// The number of the truncated last line, if any: a killed training can leave one.
    torn_line: Option<u64>,
    /// When the file was last written; the time of rows without their own.
    pub unix_seconds: f64,
}

/// A row of a table.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    pub(crate) table: &'a Path,
    pub(crate) header: &'a StringRecord,
    pub(crate) cells: &'a StringRecord,
}

/// Tracks which numbers of a `steps.csv` were logged. An empty cell means that the number was not logged. Older
/// versions wrote `nan` instead: in a file without an empty cell so far, `nan` counts as not logged until the column
/// has had a number. Current files have an empty cell in their first row, the duration of the process's first step.
#[derive(Debug, Default)]
pub struct LoggedNumbers {
    has_empty_cell: bool,
    /// By column index.
    has_had_number: Vec<bool>,
}

impl LoggedNumbers {
    /// Starts a row, before its numbers are read.
    pub fn begin(&mut self, row: &Row<'_>) {
        self.has_empty_cell |= row.cells.iter().any(str::is_empty);
        self.has_had_number.resize(row.cells.len(), false);
    }

    /// The number in a column of the current row; `None` if it was not logged.
    ///
    /// # Errors
    /// The cell is not a number.
    pub fn number(&mut self, row: &Row<'_>, place: usize) -> Result<Option<f64>, RunError> {
        let Some(value) = row.told_number(place)? else { return Ok(None) };
        let Some(has_had_number) = self.has_had_number.get_mut(place) else { return Ok(Some(value)) };
        *has_had_number |= !value.is_nan();
        Ok((*has_had_number || self.has_empty_cell).then_some(value))
    }
}

/// Extends a range of steps to include `step`.
pub fn widen(steps: &mut Option<(u64, u64)>, step: u64) {
    let (first, last) = steps.unwrap_or((step, step));
    *steps = Some((first.min(step), last.max(step)));
}

impl Table {
    /// Opens a table. `None` if it has no header because nothing could be written.
    ///
    /// # Errors
    /// The file cannot be read, or its header is not a CSV row.
    pub fn open(path: &Path, how: FileUse) -> Result<Option<Self>, RunError> {
        let failed = |source| RunError::Read { path: path.to_path_buf(), source };
        let mut file = File::open(path).map_err(failed)?;
        let (whole, torn_line) = whole_lines(&mut file).map_err(failed)?;
        let written = file.metadata().and_then(|metadata| metadata.modified()).map_err(failed)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut builder = csv::ReaderBuilder::new();
        if how == FileUse::Reopened {
            builder.buffer_capacity(REOPENED_BUFFER);
        }
        let inner = TableFile::new(file, path, how).take(whole);
        let mut rows = builder.flexible(true).from_reader(ShortLines { inner, length: 0 });
        let malformed = |source| RunError::Malformed { path: path.to_path_buf(), line: 1, source };
        let header = rows.headers().map_err(malformed)?.clone();
        if header.is_empty() {
            return Ok(None);
        }
        let unix_seconds = written.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Ok(Some(Self { path: path.to_path_buf(), header, cells: StringRecord::new(), rows, torn_line, unix_seconds }))
    }

    /// The index of a column that every such table has.
    ///
    /// # Errors
    /// The column is missing.
    pub fn place(&self, column: &'static str) -> Result<usize, RunError> {
        let found = || self.header.iter().collect::<Vec<_>>().join(",");
        self.place_of(column).ok_or_else(|| RunError::MissingColumn { path: self.path.clone(), column, found: found() })
    }

    /// The index of a column that may be missing.
    pub fn place_of(&self, column: &str) -> Option<usize> {
        self.header.iter().position(|name| name == column)
    }

    /// The names of the columns.
    pub fn header(&self) -> &StringRecord {
        &self.header
    }

    /// The number of bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.rows.position().byte()
    }

    /// The warning about a truncated last line.
    pub fn torn_line_in_words(&self) -> Option<String> {
        let line = self.torn_line?;
        Some(format!("`{}` line {line}: ignored the truncated last line", self.path.display()))
    }

    /// The warning about steps that were trained twice.
    pub fn came_again(&self, (first, last): (u64, u64)) -> String {
        let steps =
            if first == last { format!("step {first} occurs") } else { format!("steps {first} to {last} occur") };
        format!("`{}`: {steps} again: reading the first occurrence", self.path.display())
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The row that was read last.
    pub(crate) fn row(&self) -> Row<'_> {
        Row { table: &self.path, header: &self.header, cells: &self.cells }
    }

    /// Reads the next row.
    ///
    /// # Errors
    /// The file cannot be read, or the row is not valid CSV.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, RunError> {
        let line = self.rows.position().line();
        let malformed = |source| RunError::Malformed { path: self.path.clone(), line, source };
        let is_row = self.rows.read_record(&mut self.cells).map_err(malformed)?;
        Ok(is_row.then(|| self.row()))
    }
}

impl<'a> Row<'a> {
    /// Checks that the row has as many cells as the header.
    ///
    /// # Errors
    /// It is longer or shorter.
    pub fn check_length(&self) -> Result<(), RunError> {
        let (expected, found) = (self.header.len(), self.cells.len());
        if expected == found {
            return Ok(());
        }
        Err(RunError::RowLength { path: self.table.to_path_buf(), line: self.line(), expected, found })
    }

    /// The text in a column.
    pub fn text(&self, place: usize) -> &'a str {
        text_of_cell(self.cells.get(place).unwrap_or(""))
    }

    /// The integer in a column.
    ///
    /// # Errors
    /// The cell is not an integer.
    pub fn integer<T: std::str::FromStr>(&self, place: usize) -> Result<T, RunError> {
        self.text(place).parse().map_err(|_refused| self.fault(place, "an integer"))
    }

    /// The number in a column, in Python's notation of floats and bools.
    ///
    /// # Errors
    /// The cell is not a number.
    pub fn number(&self, place: usize) -> Result<f64, RunError> {
        match self.text(place) {
            "True" => Ok(1.0),
            "False" => Ok(0.0),
            cell => cell.parse().map_err(|_refused| self.fault(place, "a number")),
        }
    }

    /// As [`Self::number`]; `None` for an empty cell, which means that the number was not logged.
    ///
    /// # Errors
    /// The cell is not a number.
    fn told_number(&self, place: usize) -> Result<Option<f64>, RunError> {
        if self.text(place).is_empty() { Ok(None) } else { self.number(place).map(Some) }
    }

    /// The error for a cell that does not fit its column.
    pub fn fault(&self, place: usize, expected: &'static str) -> RunError {
        RunError::Cell {
            path: self.table.to_path_buf(),
            line: self.line(),
            column: self.header.get(place).unwrap_or("").to_owned(),
            expected,
            cell: self.text(place).to_owned(),
        }
    }

    fn line(&self) -> u64 {
        self.cells.position().map_or(0, csv::Position::line)
    }
}

/// The number of bytes in complete lines, and the number of the truncated last line, if any.
fn whole_lines(file: &mut File) -> io::Result<(u64, Option<u64>)> {
    let length = file.metadata()?.len();
    let whole = match end_of_last_line(file, MAX_LINE)? {
        Some(end) => end,
        None if length > MAX_LINE => return Err(too_long()),
        None => 0,
    };
    if whole == length {
        return Ok((whole, None));
    }
    Ok((whole, Some(newlines(file, whole)? + 1)))
}

/// The number of lines in the first `length` bytes, which end with a line end.
fn newlines(file: &mut File, length: u64) -> io::Result<u64> {
    file.seek(SeekFrom::Start(0))?;
    let mut rest = io::BufReader::new(Read::by_ref(file).take(length));
    let mut count = 0;
    while rest.skip_until(b'\n')? > 0 {
        count += 1;
    }
    Ok(count)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a line of more than {} MiB", MAX_LINE >> 20))
}

/// Returns an error for a line that is too long before it is held in memory.
struct ShortLines<R> {
    inner: R,
    /// The bytes of the current line so far.
    length: u64,
}

impl<R: Read> Read for ShortLines<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.length = match into[..read].iter().rposition(|&byte| byte == b'\n') {
            Some(newline) => (read - newline - 1) as u64,
            None => self.length + read as u64,
        };
        if self.length > MAX_LINE { Err(too_long()) } else { Ok(read) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The losses of a file that were told.
    fn losses(text: &str) -> Vec<Option<f64>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("steps.csv");
        std::fs::write(&path, format!("step,step_seconds,loss\n{text}")).unwrap();
        let mut table = Table::open(&path, FileUse::Held).unwrap().unwrap();
        let place = table.place("loss").unwrap();
        let (mut told, mut losses) = (LoggedNumbers::default(), Vec::new());
        while let Some(row) = table.next_row().unwrap() {
            told.begin(&row);
            losses.push(told.number(&row, place).unwrap());
        }
        losses
    }

    #[test]
    fn nan_is_told_but_in_a_file_that_has_it_for_what_nobody_told() {
        let [first, second] = losses("0,,nan\n1,0.5,nan\n")[..] else { panic!("two rows") };
        assert!(first.is_some_and(f64::is_nan) && second.is_some_and(f64::is_nan), "{first:?} {second:?}");
        assert_eq!(losses("0,,\n1,0.5,2.5\n"), [None, Some(2.5)]);
        assert_eq!(losses("0,nan,nan\n1,0.5,nan\n"), [None, None], "of an older version");
        let [None, Some(2.5), Some(third)] = losses("0,nan,nan\n1,0.5,2.5\n2,0.5,nan\n")[..] else {
            panic!("{:?}", losses("0,nan,nan\n1,0.5,2.5\n2,0.5,nan\n"))
        };
        assert!(third.is_nan());
    }
}
