//! Converts a monitor's step to the comparison's input. Numbers are not rounded.

use std::fmt::Write as _;

use trainmon_core::config::{Config, Dialect};
use trainmon_core::{Kind, StepBatch, StepCalls, TensorInfo, micro_step_column};

use super::names::Names;
use super::steps::{RowHead, StepRows, push_run_numbers};
use trainmon_noise::unit_roundoff;

/// Reads the batches of one rank, in order of their steps.
pub(crate) struct BatchReader {
    config: Config,
    shape: String,
}

impl BatchReader {
    /// Creates a reader for batches measured with this config.
    pub(crate) fn new(config: Config) -> Self {
        Self { config, shape: String::new() }
    }

    /// Reads a step: the rows that its CSV files have. `tensors[record.tensor.index()]` is a record's tensor.
    pub(crate) fn read(&mut self, tensors: &[TensorInfo], batch: &StepBatch, names: &mut Names, into: &mut StepRows) {
        into.begin(batch.step.0);
        self.push_records(tensors, batch, names, into);
        push_run_numbers(names, into, batch);
    }

    fn push_records(&mut self, tensors: &[TensorInfo], batch: &StepBatch, names: &mut Names, into: &mut StepRows) {
        for record in &*StepCalls::put_together(&batch.records) {
            let Some(info) = tensors.get(record.tensor.index()) else { continue };
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_loss_that_is_nan_is_a_number_that_was_told() {
        let read = |loss| {
            let (mut names, mut rows) = (Names::default(), StepRows::default());
            let batch = StepBatch { loss, ..StepBatch::default() };
            BatchReader::new(Config::default()).read(&[], &batch, &mut names, &mut rows);
            rows.values.iter().filter(|value| value.is_nan()).count()
        };
        assert_eq!((read(Some(f64::NAN)), read(None)), (1, 0));
    }
}
