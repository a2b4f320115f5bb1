//! The calls of collective operations, one by one: other CSV files have one row for all of a step.

use std::fs::File;
use std::path::{Path, PathBuf};

use trainmon_core::{Kind, Record, StepBatch, TensorInfo, cell_of};

use super::error::RecoverError;

/// The file name. The first call creates the file.
const FILE: &str = "collective_calls.csv";
const HEADER: [&str; 13] = [
    "step",
    "call",
    "op",
    "process_group",
    "sequence",
    "bytes",
    "seconds",
    "waited",
    "algbw",
    "busbw",
    "shape",
    "dtype",
    "caller",
];

/// Writes a row for each call.
pub(super) struct CallsFile {
    path: PathBuf,
    rows: Option<csv::Writer<File>>,
}

impl CallsFile {
    pub(super) fn new(directory: &Path) -> Self {
        Self { path: directory.join(FILE), rows: None }
    }

    /// Adds a step's calls, in the order in which they ended.
    pub(super) fn push(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), RecoverError> {
        for record in batch.records.iter().filter(|record| record.kind == Kind::CommTime) {
            let Some(info) = names.get(record.tensor.index()) else { continue };
            let written = self.row(&info.name, batch, record);
            written.map_err(|source| RecoverError::WriteCalls { path: self.path.clone(), source: source.into() })?;
        }
        Ok(())
    }

    fn row(&mut self, name: &str, batch: &StepBatch, record: &Record) -> Result<(), csv::Error> {
        let Some(reading) = &record.reading else { return Ok(()) };
        let rows = if let Some(rows) = &mut self.rows {
            rows
        } else {
            let mut rows = csv::Writer::from_path(&self.path)?;
            rows.write_record(HEADER)?;
            self.rows.insert(rows)
        };
        let (call, caller) = name.split_once('@').unwrap_or((name, ""));
        let (op, group) = call.split_once('/').unwrap_or((call, ""));
        let number = |column: &str| {
            let place = record.kind.value_columns().iter().position(|known| *known == column);
            place.and_then(|place| reading.values().get(place).copied()).unwrap_or(f64::NAN)
        };
        let whole = |column: &str| {
            let number = number(column);
            if number.is_nan() { "nan".to_owned() } else { format!("{number:.0}") }
        };
        let exact = |column: &str| {
            let number = number(column);
            if number.is_nan() { "nan".to_owned() } else { number.to_string() }
        };
        rows.write_record([
            batch.step.to_string(),
            record.micro_step.to_string(),
            cell_of(op).into_owned(),
            cell_of(group).into_owned(),
            whole("sequence"),
            whole("bytes"),
            exact("seconds"),
            exact("waited"),
            exact("algbw"),
            exact("busbw"),
            reading.shape().to_string(),
            reading.dtype().to_string(),
            cell_of(caller).into_owned(),
        ])
    }

    /// Flushes everything to the operating system.
    pub(super) fn finish(mut self) -> Result<(), RecoverError> {
        let flushed = self.rows.take().map_or(Ok(()), |mut rows| rows.flush());
        flushed.map_err(|source| RecoverError::WriteCalls { path: self.path, source })
    }
}
