//! One step of one rank for the comparison, independent of the file format.

use std::collections::HashMap;

use trainmon_core::StepBatch;
use trainmon_run_files::StepColumn;

use super::names::Names;

/// The kind, and the statistic, of the row of a step's own numbers.
pub const RUN_KIND: &str = "run";
const RUN_STATISTIC: &str = "value";
pub(super) const LOSS: &str = StepColumn::Loss.name();

/// A number with this many decimals was not rounded for printing.
const ALL_DECIMALS: u16 = 16;
/// Fewer decimals may be those of whole numbers and simple ratios, rounded or not.
const TELLING_DECIMALS: u16 = 3;

/// The rows of one step. The memory is reused from step to step.
#[derive(Debug, Default)]
pub struct StepRows {
    /// The step.
    pub step: u64,
    /// The number of steps that the optimizer skipped since the previous step, for example because a loss scaler
    /// detected an overflow.
    pub(super) skipped: u64,
    /// The rows.
    pub rows: Vec<RowHead>,
    /// The numbers of all rows.
    pub values: Vec<f64>,
    pub(super) digits: Digits,
    /// The number of rows of each tensor in this step so far.
    times: HashMap<u32, u32>,
}

/// A row without its numbers, which are `values[first..]`, one per column.
#[derive(Clone, Copy, Debug)]
pub struct RowHead {
    /// Its tensor, kind and micro-batch ([`Names::tensor`](crate::Names::tensor)).
    pub tensor: u32,
    /// Its columns ([`Names::columns_of`](crate::Names::columns_of)).
    pub columns: u16,
    /// The index of its first number.
    pub first: usize,
    pub(super) shape: Option<u16>,
    /// The unit round-off of the elements, if the type is known.
    pub(super) unit: Option<f64>,
    /// The table that it comes from, for [`Digits`]; `None` for numbers that are not rounded.
    pub(super) table: Option<u16>,
}

/// The printed precision of a run's numbers, as far as they were read.
#[derive(Debug, Default)]
pub(crate) struct Digits {
    /// The largest number of decimals seen, by table and column.
    tables: Vec<Vec<u16>>,
    most: u16,
}

impl StepRows {
    pub(super) fn begin(&mut self, step: u64) {
        self.step = step;
        self.skipped = 0;
        self.rows.clear();
        self.values.clear();
        self.times.clear();
    }

    /// The number of rows of the tensor in this step so far, including this one.
    pub(super) fn again(&mut self, tensor: u32) -> u32 {
        let times = self.times.entry(tensor).or_default();
        *times += 1;
        *times - 1
    }
}

/// Adds the numbers of the run itself, as far as the batch has them, and the number of skipped steps.
pub(super) fn push_run_numbers(names: &mut Names, into: &mut StepRows, batch: &StepBatch) {
    into.skipped = batch.skipped_steps;
    for column in [StepColumn::Loss, StepColumn::LearningRate, StepColumn::GradNorm] {
        let Some(value) = column.number(batch) else { continue };
        let kind = names.kind(RUN_KIND);
        let tensor = names.tensor(kind, 0, column.name(), None);
        let columns = names.columns([RUN_STATISTIC].into_iter());
        into.rows.push(RowHead { tensor, columns, first: into.values.len(), shape: None, unit: None, table: None });
        into.values.push(value);
    }
}

impl Digits {
    /// Updates the precision with a cell.
    pub(super) fn learn(&mut self, table: u16, column: usize, cell: &str) {
        let table = usize::from(table);
        if self.tables.len() <= table {
            self.tables.resize(table + 1, Vec::new());
        }
        let columns = &mut self.tables[table];
        if columns.len() <= column {
            columns.resize(column + 1, 0);
        }
        if columns[column] < ALL_DECIMALS {
            columns[column] = columns[column].max(decimals(cell));
            self.most = self.most.max(columns[column]);
        }
    }

    /// The error of a number from printing: half a unit of the last decimal.
    pub(super) fn half_unit(&self, table: Option<u16>, column: usize) -> f64 {
        let Some(table) = table else { return 0.0 };
        let of_column = self.tables.get(usize::from(table)).and_then(|columns| columns.get(column)).copied();
        let decimals = of_column.filter(|&decimals| decimals >= TELLING_DECIMALS).unwrap_or(self.most);
        if decimals >= ALL_DECIMALS { 0.0 } else { 0.5 * 10f64.powi(-i32::from(decimals)) }
    }

    /// The number of decimals to which everything is rounded, if it is.
    pub(super) fn rounded_to(&self) -> Option<u16> {
        (self.most < ALL_DECIMALS).then_some(self.most)
    }
}

/// The number of decimals in a text: 3 for `1.250`, 8 for `1.5e-07`.
fn decimals(cell: &str) -> u16 {
    let (mantissa, exponent) = cell.split_once(['e', 'E']).unwrap_or((cell, "0"));
    let after_point = mantissa.split_once('.').map_or(0, |(_, digits)| digits.len());
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let decimals = (i64::try_from(after_point).unwrap_or(0) - exponent).max(0);
    u16::try_from(decimals).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_those_of_the_number_not_of_its_mantissa() {
        for (cell, expected) in
            [("1.25", 2), ("-0.013", 3), ("1.5e-07", 8), ("3e5", 0), ("nan", 0), ("7", 0), ("1e-06", 6)]
        {
            assert_eq!(decimals(cell), expected, "{cell}");
        }
    }

    #[test]
    fn a_column_of_few_decimals_is_as_fine_as_the_run() {
        let mut digits = Digits::default();
        digits.learn(0, 0, "0.123457");
        digits.learn(0, 1, "0.5");
        assert_eq!(digits.half_unit(Some(0), 1), digits.half_unit(Some(0), 0));
        assert!((digits.half_unit(Some(0), 0) - 5e-7).abs() < 1e-18);
        assert_eq!(digits.half_unit(None, 0), 0.0);
        assert_eq!(digits.rounded_to(), Some(6));
        digits.learn(0, 0, "1.2345678901234567e-3");
        assert_eq!((digits.half_unit(Some(0), 0), digits.rounded_to()), (0.0, None));
    }
}
