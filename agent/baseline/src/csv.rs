//! A rank's CSV files, step by step.
//!
//! ```text
//! one cursor per kind of file ─▶ the lowest step any of them stands at ─▶ its rows, of all of them
//! ```
//!
//! Memory holds one step and a row per kind of file.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;

use csv::StringRecord;
use trainmon_core::Dtype;

use super::error::ReadRunError;
use super::names::{Names, unit_roundoff};
use super::steps::{RUN_KIND, RUN_NUMBERS, RUN_STATISTIC, RowHead, StepRows};
use crate::run::{RowLayout, RunDirectory, Table};

/// Kinds that measure the machine, or tensors that nobody can pair, or what a script tells: tokens per second, say.
const NOT_COMPARED: [&str; 3] = ["comm_time", "scalar", "stack_info"];

/// Reads one rank.
pub(super) struct CsvReader {
    cursors: Vec<Cursor>,
    facts: Option<FactsCursor>,
    pub(super) warnings: BTreeSet<String>,
}

/// Where the reading of the files of one prefix stands.
struct Cursor {
    prefix: String,
    paths: VecDeque<PathBuf>,
    open: Option<OpenTable>,
    /// The last row read, not yet handed out, and its step.
    cells: StringRecord,
    pending: Option<u64>,
    /// The last step handed out: one that comes again was trained twice.
    last: Option<u64>,
    /// First and last of the steps that came again in the open file.
    again: Option<(u64, u64)>,
    /// Bytes of the files before.
    passed: u64,
}

struct OpenTable {
    path: PathBuf,
    table: Table,
    layout: RowLayout,
    /// The names of its numbers, once a row was handed out.
    columns: Option<u16>,
}

impl CsvReader {
    /// For the tables of a directory; of those with the given prefixes, if any are given.
    pub(super) fn new(run: &RunDirectory, only: Option<&BTreeSet<String>>) -> Result<Self, ReadRunError> {
        let is_wanted =
            |prefix: &String| !NOT_COMPARED.contains(&prefix.as_str()) && only.is_none_or(|only| only.contains(prefix));
        let tables = run.tables.iter().filter(|(prefix, _)| is_wanted(prefix));
        let cursors = tables.map(|(prefix, paths)| Cursor::new(prefix, paths)).collect();
        let mut warnings = BTreeSet::new();
        let facts = match &run.steps {
            Some(path) if only.is_none_or(|only| only.contains(RUN_KIND)) => FactsCursor::open(path, &mut warnings)?,
            _ => None,
        };
        Ok(Self { cursors, facts, warnings })
    }

    /// Reads the next step. `false` at the end.
    pub(super) fn next(&mut self, names: &mut Names, into: &mut StepRows) -> Result<bool, ReadRunError> {
        let mut lowest: Option<u64> = None;
        for cursor in &mut self.cursors {
            let step = cursor.peek(&mut self.warnings)?;
            lowest = [lowest, step].into_iter().flatten().min();
        }
        let facts = self.facts.as_mut().map_or(Ok(None), FactsCursor::peek)?;
        let Some(step) = [lowest, facts].into_iter().flatten().min() else { return Ok(false) };
        into.begin(step);
        for (table, cursor) in self.cursors.iter_mut().enumerate() {
            let table = u16::try_from(table).unwrap_or(u16::MAX);
            while cursor.peek(&mut self.warnings)? == Some(step) {
                cursor.take(table, names, into)?;
            }
            cursor.last = cursor.last.max(Some(step));
        }
        if let Some(facts) = self.facts.as_mut().filter(|_| facts == Some(step)) {
            facts.take(names, into)?;
        }
        Ok(true)
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        let of_open = |cursor: &Cursor| cursor.open.as_ref().map_or(0, |open| open.table.bytes_read());
        self.cursors.iter().map(|cursor| cursor.passed + of_open(cursor)).sum()
    }
}

impl Cursor {
    fn new(prefix: &str, paths: &[PathBuf]) -> Self {
        Self {
            prefix: prefix.to_owned(),
            paths: paths.iter().cloned().collect(),
            open: None,
            cells: StringRecord::new(),
            pending: None,
            last: None,
            again: None,
            passed: 0,
        }
    }

    /// The step of the row that comes next.
    fn peek(&mut self, warnings: &mut BTreeSet<String>) -> Result<Option<u64>, ReadRunError> {
        while self.pending.is_none() {
            let Some(open) = &mut self.open else {
                if !self.open_next(warnings)? {
                    return Ok(None);
                }
                continue;
            };
            let Some(row) = open.table.next(&mut self.cells)? else {
                self.passed += open.table.bytes_read();
                if let Some((first, last)) = self.again.take() {
                    let steps = if first == last {
                        format!("step {first} comes")
                    } else {
                        format!("steps {first} to {last} come")
                    };
                    warnings.insert(format!("`{}`: {steps} again: what came first is compared", open.path.display()));
                }
                self.open = None;
                continue;
            };
            let Some(of) = open.layout.read(&self.prefix, &row)? else {
                let rows = "rows of collectives that msprobe writes with other columns are left out";
                warnings.insert(format!("`{}`: {rows}", open.path.display()));
                continue;
            };
            if self.last.is_some_and(|last| of.step <= last) {
                let (first, last) = self.again.unwrap_or((of.step, of.step));
                self.again = Some((first.min(of.step), last.max(of.step)));
                continue;
            }
            self.pending = (!of.is_empty).then_some(of.step);
        }
        Ok(self.pending)
    }

    fn open_next(&mut self, warnings: &mut BTreeSet<String>) -> Result<bool, ReadRunError> {
        let Some(path) = self.paths.pop_front() else { return Ok(false) };
        match Table::open(&path)? {
            None => {
                warnings.insert(format!("`{}` has no header: left out", path.display()));
            }
            Some(table) => {
                if let Some(line) = table.torn_line {
                    warnings.insert(format!("`{}` line {line}: torn off at the file's end: left out", path.display()));
                }
                let layout = RowLayout::of(&table)?;
                self.open = Some(OpenTable { path, table, layout, columns: None });
            }
        }
        Ok(true)
    }

    /// Hands out the row that [`Self::peek`] found.
    fn take(&mut self, table: u16, names: &mut Names, into: &mut StepRows) -> Result<(), ReadRunError> {
        self.pending = None;
        let Some(open) = &mut self.open else { return Ok(()) };
        let columns = *open
            .columns
            .get_or_insert_with(|| names.columns(open.layout.values.iter().map(|(_, column)| column.as_str())));
        let row = open.table.row(&self.cells);
        let Some(of) = open.layout.read(&self.prefix, &row)? else { return Ok(()) };
        let kind = names.kind(of.kind);
        let tensor = names.tensor(kind, of.vpp_stage, of.name, of.micro_step);
        let unit = of.dtype.and_then(Dtype::from_torch_name).map(unit_roundoff);
        let shape = of.shape.map(|shape| names.shape(shape));
        into.rows.push(RowHead { tensor, columns, first: into.values.len(), shape, unit, table: Some(table) });
        for (column, (place, _)) in open.layout.values.iter().enumerate() {
            into.values.push(row.number(*place)?);
            into.digits.learn(table, column, row.text(*place));
        }
        Ok(())
    }
}

/// `steps.csv`: loss, learning rate and gradient norm. NaN means there that nobody told the number as well as that it is
/// none: until a column has had a number, NaN is passed over.
struct FactsCursor {
    table: Table,
    step: usize,
    columns: Vec<(usize, &'static str, bool)>,
    cells: StringRecord,
    pending: Option<u64>,
    last: Option<u64>,
}

impl FactsCursor {
    fn open(path: &std::path::Path, warnings: &mut BTreeSet<String>) -> Result<Option<Self>, ReadRunError> {
        let Some(table) = Table::open(path)? else { return Ok(None) };
        if let Some(line) = table.torn_line {
            warnings.insert(format!("`{}` line {line}: torn off at the file's end: left out", path.display()));
        }
        let step = table.place("step")?;
        let place = |column| table.place_of(column).map(|place| (place, column, false));
        let columns = RUN_NUMBERS.into_iter().filter_map(place).collect();
        Ok(Some(Self { table, step, columns, cells: StringRecord::new(), pending: None, last: None }))
    }

    fn peek(&mut self) -> Result<Option<u64>, ReadRunError> {
        while self.pending.is_none() {
            let Some(row) = self.table.next(&mut self.cells)? else { return Ok(None) };
            row.check_length()?;
            let step = row.integer(self.step)?;
            if self.last.is_none_or(|last| step > last) {
                self.pending = Some(step);
            }
        }
        Ok(self.pending)
    }

    fn take(&mut self, names: &mut Names, into: &mut StepRows) -> Result<(), ReadRunError> {
        self.last = self.pending.take();
        let row = self.table.row(&self.cells);
        for (place, name, has_had_number) in &mut self.columns {
            let value = row.number(*place)?;
            *has_had_number |= !value.is_nan();
            if *has_had_number {
                push_run_number(names, into, name, value);
            }
        }
        Ok(())
    }
}

/// Adds a number of the run itself.
pub(super) fn push_run_number(names: &mut Names, into: &mut StepRows, name: &str, value: f64) {
    let kind = names.kind(RUN_KIND);
    let tensor = names.tensor(kind, 0, name, None);
    let columns = names.columns([RUN_STATISTIC].into_iter());
    into.rows.push(RowHead { tensor, columns, first: into.values.len(), shape: None, unit: None, table: None });
    into.values.push(value);
}
