//! Reads one rank of one run, one step at a time.

use std::collections::BTreeSet;

use super::csv::CsvReader;
use super::error::ReadRunError;
use super::journal::JournalReader;
use super::names::Names;
use super::source::{Files, RankSource};
use super::steps::StepRows;

/// One rank of one run, positioned at a step.
pub struct RankReader {
    reader: Reader,
    /// The rows of the current step.
    pub rows: StepRows,
    /// Whether `rows` is a step; `false` after the end.
    is_at_step: bool,
    last: Option<u64>,
    bytes: u64,
}

enum Reader {
    Csv(Box<CsvReader>),
    Journal(Box<JournalReader>),
}

impl RankReader {
    /// Opens the rank at its first step. If prefixes are given, only CSV files with these prefixes are read.
    ///
    /// # Errors
    /// A table is damaged (with file, line and column); a journal cannot be read.
    pub fn open(source: &RankSource, names: &mut Names, only: Option<&BTreeSet<String>>) -> Result<Self, ReadRunError> {
        let reader = match &source.files {
            Files::Csv(run) => Reader::Csv(Box::new(CsvReader::new(run, only)?)),
            Files::Journal => Reader::Journal(Box::new(JournalReader::open(&source.path)?)),
        };
        let mut reader =
            Self { reader, rows: StepRows::default(), is_at_step: true, last: None, bytes: source.bytes() };
        reader.advance(names)?;
        Ok(reader)
    }

    /// Goes to the next step.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn advance(&mut self, names: &mut Names) -> Result<(), ReadRunError> {
        if self.is_at_step {
            self.is_at_step = match &mut self.reader {
                Reader::Csv(reader) => reader.next(names, &mut self.rows)?,
                Reader::Journal(reader) => reader.next(names, &mut self.rows),
            };
            self.last = self.last.max(self.step());
        }
        Ok(())
    }

    /// Advances to the first step at or after this one. Skips what it can without reading: steps of a journal, and CSV
    /// files that end before it by their names.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn go_to(&mut self, step: u64, names: &mut Names) -> Result<(), ReadRunError> {
        if self.step().is_none_or(|at| at >= step) {
            return Ok(());
        }
        match &mut self.reader {
            Reader::Csv(reader) => reader.pass_over(step),
            Reader::Journal(reader) => reader.pass_over(step),
        }
        while self.step().is_some_and(|at| at < step) {
            self.advance(names)?;
        }
        Ok(())
    }

    /// The current step; `None` after the end.
    pub fn step(&self) -> Option<u64> {
        self.is_at_step.then_some(self.rows.step)
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        match &self.reader {
            Reader::Csv(reader) => reader.bytes(),
            Reader::Journal(reader) => {
                let (read, all) = reader.steps();
                (self.bytes as f64 * read as f64 / all.max(1) as f64) as u64
            }
        }
    }

    /// The last step reached.
    pub(crate) fn last_step(&self) -> Option<u64> {
        self.last
    }

    /// The warnings so far.
    pub fn warnings(&self) -> &BTreeSet<String> {
        match &self.reader {
            Reader::Csv(reader) => &reader.warnings,
            Reader::Journal(reader) => &reader.warnings,
        }
    }

    /// The number of decimals to which the numbers read so far are rounded.
    pub(crate) fn rounded_to(&self) -> Option<u16> {
        matches!(self.reader, Reader::Csv(_)).then(|| self.rows.digits.rounded_to()).flatten()
    }
}
