//! The series of numbers that a script logs, created with the first value of a name as long as the limit allows.

use std::collections::HashMap;

use trainmon_core::{Kind, StepBatch, TensorId, TensorInfo};

use super::run_gauges::RunGauge;
use super::series::{SeriesId, Table, label_text};
use super::tier_series::Budget;

/// A series by name; `None` for a refused one, which is never created later.
#[derive(Debug, Default)]
pub(crate) struct ScalarSeries(HashMap<TensorId, Option<SeriesId>>);

impl ScalarSeries {
    /// Sets a step's values. A name without a value in the step keeps its last one.
    pub(crate) fn set(&mut self, table: &mut Table, names: &[TensorInfo], batch: &StepBatch, budget: &mut Budget) {
        for record in batch.records.iter().filter(|record| record.kind == Kind::Scalar) {
            let value = record.reading.as_ref().and_then(|reading| reading.values().first().copied());
            let (Some(value), Some(info)) = (value, names.get(record.tensor.index())) else { continue };
            let series = self.0.entry(record.tensor).or_insert_with(|| {
                budget.left = budget.left.checked_sub(1)?;
                Some(table.add(RunGauge::Scalar as usize, &label_text(&[("name", &info.name)]), value))
            });
            match *series {
                Some(series) => table.set(series, value),
                None => budget.refused_values += 1,
            }
        }
    }
}
