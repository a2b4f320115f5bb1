//! Where the reading of the tables of one prefix stands, row by row, one table after the other.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::StringRecord;

use crate::error::RunError;
use crate::file_use::FileUse;
use crate::names::TableName;
use crate::rows::{MonitorRow, RowLayout};
use crate::table::{Row, Table, widen};

/// A row that is handed out, and what its reader keeps of its table.
pub struct ReadRow<'a, F> {
    /// Which of the cursors it comes from.
    pub cursor: usize,
    /// What the tables of that cursor are called by.
    pub prefix: &'a str,
    /// Its table.
    pub path: &'a Path,
    /// What is kept of the table.
    pub kept: &'a F,
    /// Its cells.
    pub cells: Row<'a>,
    /// What it is about.
    pub of: MonitorRow<'a>,
    /// Hears what is left out.
    pub warn: &'a mut dyn FnMut(String),
    pub(crate) facts: &'a Arc<TableFacts<F>>,
}

/// What the rows of a table are read by.
pub(crate) struct TableFacts<F> {
    cursor: usize,
    prefix: String,
    path: PathBuf,
    header: StringRecord,
    layout: RowLayout,
    kept: F,
}

impl<F> TableFacts<F> {
    /// Hands a row of the table to `read`, as one of another kind if one is named.
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

/// Reads the tables of one prefix. Of steps that come again, because the run was resumed before them, the first ones are read.
///
/// `F` is what a reader keeps of each table, made when it is opened.
pub(crate) struct TableCursor<F> {
    number: usize,
    prefix: String,
    paths: VecDeque<PathBuf>,
    keep: fn(&Table, &RowLayout) -> F,
    /// Whether V1's rows for hooks that were given no tensor are handed out.
    with_empty_rows: bool,
    file_use: FileUse,
    open: Option<OpenTable<F>>,
    /// The step of the row that was read last and not yet handed out.
    pending: Option<u64>,
    /// The last step that is done: one that comes again was trained twice.
    last: Option<u64>,
    /// The step of the row that was handed out last.
    newest: Option<u64>,
    /// Whether the rows went back behind it: its own come again, too, then.
    went_back: bool,
    /// First and last of the steps that came again in the open table.
    again: Option<(u64, u64)>,
    /// Whether the open table has rows that are none of its header, which was said.
    has_collectives: bool,
    /// Bytes of the tables before.
    passed: u64,
}

struct OpenTable<F> {
    table: Table,
    facts: Arc<TableFacts<F>>,
}

impl<F> TableCursor<F> {
    /// Before the first row of the first table; `number` tells this cursor's rows from those of others.
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

    /// What its tables are called by.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Opens the first table that has a header; what is kept of it. `warn` hears what is left out.
    ///
    /// # Errors
    /// A table cannot be read or has not the columns that every table has.
    pub(crate) fn begin(&mut self, warn: &mut dyn FnMut(String)) -> Result<Option<&F>, RunError> {
        while self.open.is_none() && self.open_next(warn)? {}
        Ok(self.open.as_ref().map(|open| &open.facts.kept))
    }

    /// The step of the row that comes next; `None` at the end.
    ///
    /// # Errors
    /// As [`Self::begin`]; a row is damaged.
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
                    let rows = "rows of collectives that msprobe writes with other columns are left out";
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

    /// Hands the row that [`Self::peek`] found to `read`.
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

    /// All rows of a step were handed out, or there are none.
    pub(crate) fn finish_step(&mut self, step: u64) {
        self.last = self.last.max(Some(step));
    }

    /// Goes on behind the tables that end before a step, as their names say. The last table is never passed over: the run's last step
    /// is known by it.
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

    /// Bytes that were read or passed over so far.
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
            warn(format!("`{}` has no header: left out", path.display()));
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
