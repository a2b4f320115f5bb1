//! A rank's CSV files, step by step.
//!
//! ```text
//! one cursor per kind of file ─▶ the lowest step any of them stands at ─▶ its rows, of all of them
//! ```
//!
//! Memory holds one step and a row per kind of file.

use std::collections::BTreeSet;

use csv::StringRecord;
use trainmon_core::Dtype;

use super::error::ReadRunError;
use super::left_out::LeftOutRows;
use super::names::Names;
use super::steps::{RUN_KIND, RUN_NUMBERS, RUN_STATISTIC, RowHead, StepRows};
use crate::run::{RowLayout, RunDirectory, Table, TableCursor, ToldNumbers};
use trainmon_noise::unit_roundoff;

/// Kinds that measure the machine, or tensors that nobody can pair, or what a script tells: tokens per second, say.
const NOT_COMPARED: [&str; 3] = ["comm_time", "scalar", "stack_info"];

/// Reads one rank.
pub(super) struct CsvReader {
    cursors: Vec<TableCursor<Kept>>,
    facts: Option<FactsCursor>,
    left_out: LeftOutRows,
    pub(super) warnings: BTreeSet<String>,
}

/// What is kept of a table: its numbers, and their names once a row was handed out.
struct Kept {
    values: Vec<(usize, String)>,
    columns: Option<u16>,
}

impl Kept {
    fn of(_: &Table, layout: &RowLayout) -> Self {
        Self { values: layout.values.clone(), columns: None }
    }
}

impl CsvReader {
    /// For the tables of a directory; of those with the given prefixes, if any are given.
    pub(super) fn new(run: &RunDirectory, only: Option<&BTreeSet<String>>) -> Result<Self, ReadRunError> {
        let is_wanted =
            |prefix: &String| !NOT_COMPARED.contains(&prefix.as_str()) && only.is_none_or(|only| only.contains(prefix));
        let tables = run.tables.iter().filter(|(prefix, _)| is_wanted(prefix));
        // A row without numbers says that what is left out is missing: it is read, and taken away again.
        let may_lack = |prefix: &str| run.left_out.in_words().any(|(kind, _)| kind == prefix);
        let cursor = |(prefix, paths): (&String, &Vec<_>)| TableCursor::new(prefix, paths, may_lack(prefix), Kept::of);
        let cursors = tables.map(cursor).collect();
        let mut warnings = BTreeSet::new();
        let facts = match &run.steps {
            Some(path) if only.is_none_or(|only| only.contains(RUN_KIND)) => FactsCursor::open(path, &mut warnings)?,
            _ => None,
        };
        Ok(Self { cursors, facts, left_out: LeftOutRows::new(run.left_out), warnings })
    }

    /// Reads the next step. `false` at the end.
    pub(super) fn next(&mut self, names: &mut Names, into: &mut StepRows) -> Result<bool, ReadRunError> {
        let mut lowest: Option<u64> = None;
        let warnings = &mut self.warnings;
        let mut warn = |warning| _ = warnings.insert(warning);
        for cursor in &mut self.cursors {
            let step = cursor.peek(&mut warn)?;
            lowest = [lowest, step].into_iter().flatten().min();
        }
        let facts = self.facts.as_mut().map_or(Ok(None), FactsCursor::peek)?;
        let Some(step) = [lowest, facts].into_iter().flatten().min() else { return Ok(false) };
        into.begin(step);
        for (table, cursor) in self.cursors.iter_mut().enumerate() {
            let table = u16::try_from(table).unwrap_or(u16::MAX);
            while cursor.peek(&mut warn)? == Some(step) {
                take(cursor, table, names, into)?;
            }
            cursor.finish_step(step);
        }
        self.left_out.fill_in(names, into);
        if let Some(facts) = self.facts.as_mut().filter(|_| facts == Some(step)) {
            facts.take(names, into)?;
        }
        Ok(true)
    }

    /// Goes on behind the tables that end before a step, and before the one that is read with it.
    pub(super) fn pass_over(&mut self, step: u64) {
        let step = if self.left_out.looks_back() { step.saturating_sub(1) } else { step };
        self.cursors.iter_mut().for_each(|cursor| cursor.pass_over(step));
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.cursors.iter().map(TableCursor::bytes_read).sum()
    }
}

/// Hands out the row that the cursor stands at.
fn take(
    cursor: &mut TableCursor<Kept>,
    number: u16,
    names: &mut Names,
    into: &mut StepRows,
) -> Result<(), ReadRunError> {
    cursor.take(|_, Kept { values, columns }, row, of| {
        let columns = *columns.get_or_insert_with(|| names.columns(values.iter().map(|(_, column)| column.as_str())));
        let kind = names.kind(of.kind);
        let first = names.tensor(kind, of.vpp_stage, of.name, of.micro_step);
        // V2's files do not number micro-batches: each has a row of the same name.
        let tensor = match (of.micro_step, into.again(first)) {
            (None, again) if again > 0 => names.tensor(kind, of.vpp_stage, of.name, Some(again)),
            _ => first,
        };
        let unit = of.dtype.and_then(Dtype::from_torch_name).map(unit_roundoff);
        let shape = of.shape.map(|shape| names.shape(shape));
        into.rows.push(RowHead { tensor, columns, first: into.values.len(), shape, unit, table: Some(number) });
        for (column, (place, _)) in values.iter().enumerate() {
            into.values.push(row.number(*place)?);
            into.digits.learn(number, column, row.text(*place));
        }
        Ok(())
    })?;
    Ok(())
}

/// `steps.csv`: loss, learning rate and gradient norm.
struct FactsCursor {
    table: Table,
    step: usize,
    columns: Vec<(usize, &'static str)>,
    told: ToldNumbers,
    skipped: Option<usize>,
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
        let place = |column| table.place_of(column).map(|place| (place, column));
        let columns = RUN_NUMBERS.into_iter().filter_map(place).collect();
        let skipped = table.place_of("skipped_steps");
        let told = ToldNumbers::default();
        Ok(Some(Self { table, step, columns, told, skipped, cells: StringRecord::new(), pending: None, last: None }))
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
        into.skipped = self.skipped.map(|place| row.integer(place)).transpose()?.unwrap_or(0);
        self.told.begin(&row);
        for (place, name) in &self.columns {
            if let Some(value) = self.told.number(&row, *place)? {
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
