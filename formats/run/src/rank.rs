//! Reads a rank's files, one step at a time.
//!
//! ```text
//! one cursor per kind of file, one for steps.csv ─▶ the lowest step of all cursors ─▶ the rows of that step from all
//! cursors
//! ```

use trainmon_core::StepBatch;

use crate::cursor::{ReadRow, TableCursor};
use crate::directory::RunDirectory;
use crate::error::RunError;
use crate::file_use::FileUse;
use crate::left_out::LeftOutRows;
use crate::rows::RowLayout;
use crate::steps::{StepColumn, StepsReader};
use crate::table::Table;

/// The part of a rank's files to read.
pub struct Selection<'a> {
    /// Whether the tables of a prefix are read.
    pub tables: &'a dyn Fn(&str) -> bool,
    /// Whether V1's rows for hooks without a tensor are passed on.
    pub empty_rows: bool,
    /// The columns of `steps.csv`; if empty, the file is not opened.
    pub steps: &'a [StepColumn],
    /// Whether files stay open between reads.
    pub file_use: FileUse,
}

/// Reads a rank's tables and `steps.csv`, including omitted rows. Memory holds one row of each table, and two steps'
/// rows of the kinds that omitted rows repeat. `F` is the reader's data about each table.
pub struct RankFiles<F> {
    cursors: Vec<TableCursor<F>>,
    steps: Option<StepsReader>,
    left_out: LeftOutRows<F>,
}

impl<F> RankFiles<F> {
    /// A reader before the first step. `keep` creates the reader's data when a table is opened; `warn` receives
    /// warnings about ignored content.
    ///
    /// # Errors
    /// `steps.csv` cannot be read or has no column `step`.
    pub fn open(
        run: &RunDirectory,
        selection: &Selection<'_>,
        keep: fn(&Table, &RowLayout) -> F,
        warn: &mut dyn FnMut(String),
    ) -> Result<Self, RunError> {
        let tables = run.tables.iter().filter(|(prefix, _)| (selection.tables)(prefix));
        // A row without numbers marks an omitted row as absent.
        let with_empty_rows =
            |prefix: &str| selection.empty_rows || run.left_out.kinds().any(|kind| kind.name() == prefix);
        let cursors = tables
            .enumerate()
            .map(|(number, (prefix, paths))| {
                TableCursor::new(number, prefix, paths, with_empty_rows(prefix), selection.file_use, keep)
            })
            .collect();
        let steps = match &run.steps {
            Some(path) if !selection.steps.is_empty() => {
                StepsReader::open(path, selection.file_use, selection.steps, warn)?
            }
            _ => None,
        };
        Ok(Self { cursors, steps, left_out: LeftOutRows::new(run.left_out) })
    }

    /// Opens the first table of each prefix; calls `each` with the prefix and the reader's data.
    ///
    /// # Errors
    /// A table cannot be read or lacks a column that every table has.
    pub fn begin(&mut self, warn: &mut dyn FnMut(String), mut each: impl FnMut(&str, &F)) -> Result<(), RunError> {
        for cursor in &mut self.cursors {
            let prefix = cursor.prefix().to_owned();
            if let Some(kept) = cursor.begin(warn)? {
                each(&prefix, kept);
            }
        }
        Ok(())
    }

    /// Whether `steps.csv` is read.
    pub fn has_steps(&self) -> bool {
        self.steps.is_some()
    }

    /// The next step; `None` at the end.
    ///
    /// # Errors
    /// A table cannot be read, or a row is damaged.
    pub fn peek(&mut self, warn: &mut dyn FnMut(String)) -> Result<Option<u64>, RunError> {
        let mut lowest = self.steps.as_mut().map_or(Ok(None), StepsReader::peek)?;
        for cursor in &mut self.cursors {
            lowest = [lowest, cursor.peek(warn)?].into_iter().flatten().min();
        }
        Ok(lowest)
    }

    /// Passes the rows of the step that [`Self::peek`] found to `read`, table by table, then the omitted rows.
    ///
    /// # Errors
    /// As [`Self::peek`], or `read` refuses a row.
    pub fn rows(
        &mut self,
        step: u64,
        warn: &mut dyn FnMut(String),
        mut read: impl FnMut(&mut ReadRow<'_, F>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let left_out = &mut self.left_out;
        for cursor in &mut self.cursors {
            while cursor.peek(warn)? == Some(step) {
                cursor.take(warn, &mut |row| if left_out.takes(row) { Ok(()) } else { read(row) })?;
            }
            cursor.finish_step(step);
        }
        left_out.hand_out(step, warn, &mut read)
    }

    /// Adds the step's numbers in `steps.csv` to a batch that was reset before; returns whether they include the time.
    ///
    /// # Errors
    /// The line is damaged.
    pub fn numbers(&mut self, step: u64, batch: &mut StepBatch) -> Result<bool, RunError> {
        let Some(steps) = &mut self.steps else { return Ok(false) };
        if steps.peek()? == Some(step) { steps.take(batch) } else { Ok(false) }
    }

    /// The warning about lines of `steps.csv` whose steps occurred again; returned once.
    pub fn steps_came_again(&mut self) -> Option<String> {
        self.steps.as_mut().and_then(StepsReader::came_again)
    }

    /// Skips the tables that end before a step, and before the step that is read with it, according to their names.
    pub fn pass_over(&mut self, step: u64) {
        let step = if self.left_out.looks_back() { step.saturating_sub(1) } else { step };
        self.cursors.iter_mut().for_each(|cursor| cursor.pass_over(step));
    }

    /// The number of bytes read or skipped so far.
    pub fn bytes_read(&self) -> u64 {
        let of_steps = self.steps.as_ref().map_or(0, StepsReader::bytes_read);
        self.cursors.iter().map(TableCursor::bytes_read).sum::<u64>() + of_steps
    }
}
