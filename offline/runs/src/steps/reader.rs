//! Reads a rank's steps from any source.

use std::path::Path;
use std::sync::Arc;

use trainmon_core::config::Config;
use trainmon_core::{Kind, StatisticSet, StepBatch, TensorInfo};
use trainmon_exporters::MeasuredStatistics;
use trainmon_journal::Recovered;
use trainmon_logs::Log;

use super::csv::CsvReader;
use super::cursor::Names;
use super::error::ReadRunError;
use super::log::LogReader;
use super::times::StepTimes;
use trainmon_baseline::ReadRunError as RanksError;
use trainmon_run_files::{FileUse, RunDirectory};

/// Reads a rank's steps, oldest first. Of a step that was trained twice, the first is read.
pub struct StepReader {
    source: Source,
    names: Names,
    warnings: Vec<String>,
}

enum Source {
    Csv(Box<CsvReader>),
    Journal(Box<JournalReader>),
    Log(Box<LogReader>),
}

struct JournalReader {
    recovered: Recovered,
    config: Config,
    measured: MeasuredStatistics,
    next: usize,
    last: Option<u64>,
}

impl StepReader {
    pub(crate) fn of_csv(run: &RunDirectory, how: FileUse) -> Result<Self, ReadRunError> {
        let mut warnings = Vec::new();
        let source = Source::Csv(Box::new(CsvReader::open(run, how, &mut warnings)?));
        Ok(Self { source, names: Names::default(), warnings })
    }

    pub(super) fn of_journal(path: &Path) -> Result<Self, ReadRunError> {
        let recovered = Recovered::open(path).map_err(RanksError::from)?;
        let warnings = recovered.faults().iter().map(|fault| format!("`{}`: {fault}", path.display())).collect();
        let config = recovered.config();
        let measured = MeasuredStatistics::of_kinds(|kind| of_config(&config, kind));
        let journal = JournalReader { recovered, config, measured, next: 0, last: None };
        Ok(Self { source: Source::Journal(Box::new(journal)), names: Names::default(), warnings })
    }

    pub(super) fn of_log(log: &Arc<Log>) -> Self {
        let warnings = log.warnings.clone();
        let source = Source::Log(Box::new(LogReader::new(Arc::clone(log))));
        Self { source, names: Names::default(), warnings }
    }

    /// Reads the next step into `batch`. Returns `false` at the end.
    ///
    /// # Errors
    /// A CSV file is damaged (with file, line and column). Torn data in a journal are a warning.
    pub fn next(&mut self, batch: &mut StepBatch) -> Result<bool, ReadRunError> {
        let mut names = std::mem::take(&mut self.names);
        let read = self.next_with(&mut names, batch);
        self.names = names;
        read
    }

    /// The number of the next step, without its rows; `None` at the end.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) fn peek(&mut self) -> Result<Option<u64>, ReadRunError> {
        match &mut self.source {
            Source::Csv(reader) => Ok(reader.peek(&mut self.warnings)?),
            Source::Journal(reader) => Ok(reader.peek()),
            Source::Log(reader) => Ok(reader.peek()),
        }
    }

    /// Reads like [`Self::next`], for readers that share the names of their tensors: the IDs are those of [`Self::names_of`].
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) fn next_with(&mut self, names: &mut Names, batch: &mut StepBatch) -> Result<bool, ReadRunError> {
        match &mut self.source {
            Source::Csv(reader) => Ok(reader.next(names, batch, &mut self.warnings)?),
            Source::Journal(reader) => Ok(reader.next(batch, &mut self.warnings)),
            Source::Log(reader) => Ok(reader.next(batch)),
        }
    }

    /// The names for [`Self::next_with`]: the shared ones, or a journal's own.
    pub(crate) fn names_of<'a>(&'a self, shared: &'a Names) -> &'a [TensorInfo] {
        match &self.source {
            Source::Csv(_) => &shared.all,
            Source::Journal(reader) => reader.recovered.names(),
            Source::Log(reader) => reader.names(),
        }
    }

    /// The names of the tensors read so far, by ID.
    pub fn names(&self) -> &[TensorInfo] {
        self.names_of(&self.names)
    }

    /// The statistics in the readings.
    pub fn measured(&self) -> MeasuredStatistics {
        match &self.source {
            Source::Csv(reader) => reader.measured,
            Source::Journal(reader) => reader.measured,
            Source::Log(reader) => reader.measured,
        }
    }

    /// A config with exactly the recorded kinds and statistics.
    pub fn config(&self) -> &Config {
        match &self.source {
            Source::Csv(reader) => &reader.config,
            Source::Journal(reader) => &reader.config,
            Source::Log(reader) => &reader.config,
        }
    }

    /// Whether steps have their cost and the counts of their records: msprobe's files do not.
    pub fn has_account(&self) -> bool {
        match &self.source {
            Source::Csv(reader) => reader.has_facts(),
            Source::Journal(_) => true,
            Source::Log(_) => false,
        }
    }

    /// Whether the last step has its own time.
    pub fn has_time(&self) -> bool {
        match &self.source {
            Source::Csv(reader) => reader.has_time,
            Source::Journal(_) => true,
            Source::Log(reader) => reader.has_time,
        }
    }

    /// Whether the steps read so far have their own times.
    pub fn times(&self) -> StepTimes {
        match &self.source {
            Source::Csv(reader) => reader.times,
            Source::Journal(_) => StepTimes::Known,
            Source::Log(reader) => reader.times,
        }
    }

    /// The number of bytes read of a rank's files; for a journal or another tool's log, in proportion to the steps.
    pub fn bytes_read(&self) -> u64 {
        match &self.source {
            Source::Csv(reader) => reader.bytes_read(),
            Source::Journal(reader) => {
                let length = reader.recovered.path().metadata().map_or(0, |file| file.len());
                length * reader.next as u64 / (reader.recovered.step_numbers().len() as u64).max(1)
            }
            Source::Log(reader) => reader.bytes_read(),
        }
    }

    /// Warnings about the files read so far, a sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl JournalReader {
    /// The number of the next step. If reading it fails, it is skipped: [`Self::next`] continues with the following one.
    fn peek(&self) -> Option<u64> {
        let ahead = self.recovered.step_numbers().skip(self.next);
        ahead.map(|step| step.0).find(|step| self.last.is_none_or(|last| *step > last))
    }

    fn next(&mut self, batch: &mut StepBatch, warnings: &mut Vec<String>) -> bool {
        while let Some(step) = self.recovered.step(self.next) {
            self.next += 1;
            match step {
                Ok(step) if self.last.is_none_or(|last| step.batch.step.0 > last) => {
                    self.last = Some(step.batch.step.0);
                    *batch = step.batch;
                    return true;
                }
                Ok(step) => {
                    warnings.push(format!(
                        "`{}`: step {} comes again: what came first is read",
                        self.recovered.path().display(),
                        step.batch.step
                    ));
                }
                Err(fault) => warnings.push(format!("`{}`: {fault}", self.recovered.path().display())),
            }
        }
        false
    }
}

fn of_config(config: &Config, kind: Kind) -> StatisticSet {
    config.signal(kind).map_or(StatisticSet::EMPTY, trainmon_core::config::Signal::set)
}
