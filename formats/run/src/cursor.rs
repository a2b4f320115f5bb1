//! Reads the tables of one prefix, row by row, one table after the other.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::StringRecord;

use crate::error::RunError;
use crate::file_use::FileUse;
use crate::names::TableName;
use crate::rows::{MonitorRow, RowLayout};
use crate::table::{Row, Table, widen};

/// A row that is passed to the reader, with the reader's data about its table.
pub struct ReadRow<'a, F> {
    /// The index of the cursor that read the row.
    pub cursor: usize,
    /// The prefix of that cursor's tables.
    pub prefix: &'a str,
    /// The path of the table.
    pub path: &'a Path,
    /// The reader's data about the table.
    pub kept: &'a F,
    /// The cells.
    pub cells: Row<'a>,
    /// The content of the row's name columns.
    pub of: MonitorRow<'a>,
    /// Receives warnings about ignored rows.
    pub warn: &'a mut dyn FnMut(String),
    pub(crate) facts: &'a Arc<TableFacts<F>>,
}

/// The data needed to read the rows of a table.
pub(crate) struct TableFacts<F> {
    cursor: usize,
    prefix: String,
    path: PathBuf,
    header: StringRecord,
    layout: RowLayout,
    kept: F,
}

impl<F> TableFacts<F> {
    /// Passes the row of the table to `read`, as one of another kind if `kind` is given.
    ///
    /// # Errors
    /// The row is damaged, or `read` refuses it.
    pub(crate) fn hand_out(
        self: &Arc<Self>,
        cells: &StringRecord,
        of_kind: Option<&str>,
        warn: &mut dyn FnMut(String),
        read: &mut impl FnMut(&mut ReadRow<'_, F>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let Self { cursor, prefix, path, header, layout, kept } = &**self;
        let cells = Row { table: path, header, cells };
        let Some(of) = layout.read(prefix, &cells)? else { return Ok(()) };
        let of = MonitorRow { kind: of_kind.unwrap_or(of.kind), ..of };
        read(&mut ReadRow { cursor: *cursor, prefix, path, kept, cells, of, warn, facts: self })
    }
}

/// Reads the tables of one prefix. If steps occur again because the run was resumed before them, the first ones are
/// read.
///
/// `F` is the reader's data about each table, created when the table is opened.
pub(crate) struct TableCursor<F> {
    number: usize,
    prefix: String,
    paths: VecDeque<PathBuf>,
    keep: fn(&Table, &RowLayout) -> F,
    /// Whether V1's rows for hooks without a tensor are passed on.
    with_empty_rows: bool,
    file_use: FileUse,
    open: Option<OpenTable<F>>,
    /// The step of the row that was read but not passed on.
    pending: Option<u64>,
    /// The last finished step: one that occurs again was trained twice.
    last: Option<u64>,
    /// The step of the row that was passed on last.
    newest: Option<u64>,
    /// Whether the rows went back behind it: then its own rows occur again, too.
    went_back: bool,
    /// The first and last of the steps that occurred again in the open table.
    again: Option<(u64, u64)>,
    /// Whether the open table has rows of collectives, which were reported.
    has_collectives: bool,
    /// The number of bytes of the finished tables.
    passed: u64,
}

struct OpenTable<F> {
    table: Table,
    facts: Arc<TableFacts<F>>,
}

impl<F> TableCursor<F> {
    /// A cursor before the first row of the first table; `number` identifies this cursor in [`ReadRow`].
    pub(crate) fn new(
        number: usize,
        prefix: &str,
        paths: &[PathBuf],
        with_empty_rows: bool,
        file_use: FileUse,
        keep: fn(&Table, &RowLayout) -> F,
    ) -> Self {
        Self {
            number,
            prefix: prefix.to_owned(),
            paths: paths.iter().cloned().collect(),
            keep,
            with_empty_rows,
            file_use,
            open: None,
            pending: None,
            last: None,
            newest: None,
            went_back: false,
            again: None,
            has_collectives: false,
            passed: 0,
        }
    }

    /// The prefix of its tables.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Opens the first table that has a header and returns the reader's data about it. `warn` receives warnings about
    /// ignored tables.
    ///
    /// # Errors
    /// A table cannot be read or lacks a column that every table has.
    pub(crate) fn begin(&mut self, warn: &mut dyn FnMut(String)) -> Result<Option<&F>, RunError> {
        while self.open.is_none() && self.open_next(warn)? {}
        Ok(self.open.as_ref().map(|open| &open.facts.kept))
    }

    /// The step of the next row; `None` at the end.
    ///
    /// # Errors
    /// As [`Self::begin`], or a row is damaged.
    pub(crate) fn peek(&mut self, warn: &mut dyn FnMut(String)) -> Result<Option<u64>, RunError> {
        while self.pending.is_none() {
            let Some(open) = &mut self.open else {
                if !self.open_next(warn)? {
                    return Ok(None);
                }
                continue;
            };
            let Some(row) = open.table.next_row()? else {
                if let Some(range) = self.again.take() {
                    warn(open.table.came_again(range));
                }
                self.close();
                continue;
            };
            let Some(of) = open.facts.layout.read(&self.prefix, &row)? else {
                if !std::mem::replace(&mut self.has_collectives, true) {
                    let rows = "ignored rows of collectives, which msprobe writes with other columns";
                    warn(format!("`{}`: {rows}", open.table.path().display()));
                }
                continue;
            };
            self.went_back |= self.newest.is_some_and(|newest| of.step < newest);
            let handed_out = if self.went_back { self.newest.max(self.last) } else { self.last };
            if handed_out.is_some_and(|last| of.step <= last) {
                widen(&mut self.again, of.step);
                continue;
            }
            self.pending = Some(of.step).filter(|_| self.with_empty_rows || !of.is_empty);
        }
        Ok(self.pending)
    }

    /// Passes the row that [`Self::peek`] found to `read`.
    ///
    /// # Errors
    /// The row is damaged, or `read` refuses it.
    pub(crate) fn take(
        &mut self,
        warn: &mut dyn FnMut(String),
        read: &mut impl FnMut(&mut ReadRow<'_, F>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let Some(step) = self.pending.take() else { return Ok(()) };
        (self.newest, self.went_back) = (Some(step), false);
        let Some(OpenTable { table, facts }) = &self.open else { return Ok(()) };
        facts.hand_out(table.row().cells, None, warn, read)
    }

    /// Marks a step as finished: all its rows were passed on, or it has none.
    pub(crate) fn finish_step(&mut self, step: u64) {
        self.last = self.last.max(Some(step));
    }

    /// Skips the tables that end before a step, according to their names. The last table is never skipped, because it
    /// contains the run's last step.
    pub(crate) fn pass_over(&mut self, step: u64) {
        let ends_before = |path: &Path| TableName::of(path).is_some_and(|table| table.last < step);
        if !self.paths.is_empty() && self.open.as_ref().is_some_and(|open| ends_before(open.table.path())) {
            self.close();
        }
        while self.open.is_none() && self.paths.len() > 1 && ends_before(&self.paths[0]) {
            let length = |path: PathBuf| path.metadata().map_or(0, |file| file.len());
            self.passed += self.paths.pop_front().map_or(0, length);
        }
    }

    /// The number of bytes read or skipped so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.passed + self.open.as_ref().map_or(0, |open| open.table.bytes_read())
    }

    fn close(&mut self) {
        self.passed = self.bytes_read();
        (self.open, self.pending, self.again, self.has_collectives) = (None, None, None, false);
    }

    fn open_next(&mut self, warn: &mut dyn FnMut(String)) -> Result<bool, RunError> {
        let Some(path) = self.paths.pop_front() else { return Ok(false) };
        let Some(table) = Table::open(&path, self.file_use)? else {
            warn(format!("ignored `{}`, which has no header", path.display()));
            return Ok(true);
        };
        table.torn_line_in_words().into_iter().for_each(&mut *warn);
        let layout = RowLayout::of(&table)?;
        let kept = (self.keep)(&table, &layout);
        let (cursor, prefix, header) = (self.number, self.prefix.clone(), table.header().clone());
        let facts = Arc::new(TableFacts { cursor, prefix, path, header, layout, kept });
        self.open = Some(OpenTable { table, facts });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tables_that_end_before_a_step_are_not_opened_but_for_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let header = "vpp_stage,name,step,norm\n";
        let paths: Vec<PathBuf> = [(0, 9), (10, 19), (20, 29)]
            .map(|(first, last)| {
                let path = folder.path().join(format!("grad_reduced_{first}-{last}.csv"));
                let rows: Vec<String> = (first..=last).map(|step| format!("0,w,{step},1.0\n")).collect();
                fs::write(&path, format!("{header}{}", rows.concat())).unwrap();
                path
            })
            .into();
        // Who opened it would fail.
        fs::write(&paths[1], "no table\n1,2\n").unwrap();
        let mut said = Vec::new();
        let mut cursor = TableCursor::new(0, "grad_reduced", &paths, false, FileUse::Held, |_, _| ());
        let mut warn = |text| said.push(text);
        assert_eq!(cursor.peek(&mut warn).unwrap(), Some(0));
        cursor.pass_over(25);
        assert_eq!(cursor.peek(&mut warn).unwrap(), Some(20));
        let mut late = TableCursor::new(0, "grad_reduced", &paths, false, FileUse::Held, |_, _| ());
        late.pass_over(1000);
        assert_eq!(late.peek(&mut warn).unwrap(), Some(20), "the last step is told by the last table");
        assert!(said.is_empty(), "{said:?}");
    }
}
