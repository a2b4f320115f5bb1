//! A rank's journal, step by step. Its numbers are not rounded.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use trainmon_core::config::{Config, Dialect};
use trainmon_core::{Kind, micro_step_column};
use trainmon_dump::journal::Recovered;

use super::csv::push_run_number;
use super::error::ReadRunError;
use super::names::{Names, unit_roundoff};
use super::steps::{RUN_NUMBERS, RowHead, StepRows};

/// Reads one rank.
pub(super) struct JournalReader {
    recovered: Recovered,
    config: Config,
    next: usize,
    last: Option<u64>,
    has_had_number: [bool; RUN_NUMBERS.len()],
    shape: String,
    pub(super) warnings: BTreeSet<String>,
}

impl JournalReader {
    pub(super) fn open(path: &Path) -> Result<Self, ReadRunError> {
        let recovered = Recovered::open(path)?;
        let warnings = recovered.faults().iter().map(|fault| format!("`{}`: {fault}", path.display())).collect();
        let config = recovered.config();
        let (has_had_number, shape) = ([false; RUN_NUMBERS.len()], String::new());
        Ok(Self { recovered, config, next: 0, last: None, has_had_number, shape, warnings })
    }

    /// Reads the next step. `false` at the end.
    pub(super) fn next(&mut self, names: &mut Names, into: &mut StepRows) -> bool {
        while let Some(step) = self.recovered.step(self.next) {
            self.next += 1;
            let step = match step {
                Ok(step) => step,
                Err(fault) => {
                    self.warnings.insert(format!("`{}`: {fault}", self.recovered.path().display()));
                    continue;
                }
            };
            let number = step.batch.step.0;
            if self.last.is_some_and(|last| number <= last) {
                continue;
            }
            self.last = Some(number);
            into.begin(number);
            self.push_records(names, into, &step.batch);
            let numbers = [step.batch.loss, step.batch.learning_rate, step.batch.grad_norm()];
            for ((name, value), had) in RUN_NUMBERS.into_iter().zip(numbers).zip(&mut self.has_had_number) {
                *had |= value.is_some_and(|value| !value.is_nan());
                if *had {
                    push_run_number(names, into, name, value.unwrap_or(f64::NAN));
                }
            }
            return true;
        }
        false
    }

    fn push_records(&mut self, names: &mut Names, into: &mut StepRows, batch: &trainmon_core::StepBatch) {
        for record in &batch.records {
            let Some(info) = self.recovered.names().get(record.tensor.index()) else { continue };
            let Some(reading) = &record.reading else { continue };
            if matches!(record.kind, Kind::CommTime | Kind::Scalar) {
                continue;
            }
            let first_call = u32::from(self.config.dialect == Dialect::V2);
            let micro_step = micro_step_column(&self.config, record.kind).then_some(record.micro_step.0 + first_call);
            let kind = names.kind(record.kind.name());
            let tensor = names.tensor(kind, info.vpp_stage, &info.name, micro_step);
            let (first, plain) = (into.values.len(), record.kind.value_columns());
            let columns = if plain.is_empty() {
                let ops = batch.ops_of(&self.config, record.kind);
                into.values.extend(ops.iter().map(|&op| reading.value(op)));
                names.columns(ops.iter().map(|op| op.name()))
            } else {
                into.values.extend(reading.values());
                names.columns(plain.iter().copied())
            };
            let is_tensor = plain.is_empty();
            self.shape.clear();
            let shape =
                (is_tensor && write!(self.shape, "{}", reading.shape()).is_ok()).then(|| names.shape(&self.shape));
            let unit = is_tensor.then(|| unit_roundoff(reading.dtype()));
            into.rows.push(RowHead { tensor, columns, first, shape, unit, table: None });
        }
    }

    /// Steps read so far, and in all.
    pub(super) fn steps(&self) -> (u64, u64) {
        (self.next as u64, self.recovered.step_numbers().len() as u64)
    }
}
