//! The rows of the heat maps: three numbers per tensor and column.

use std::collections::HashMap;
use std::sync::Arc;

use trainmon_core::{Kind, Reading};

use crate::axis::AxisChange;
use crate::level::Level;

/// The content of a cell without a value. No statistic of a row is negative.
pub const ABSENT: f32 = -1.0;

/// The largest number of statistics of a row.
pub const STATISTICS: usize = 3;

/// The statistics of one tensor in one step, in the order of [`statistics_of`]; [`ABSENT`] for an unknown one.
pub type Cell = [f32; STATISTICS];

/// A cell without any value.
pub const NO_CELL: Cell = [ABSENT; STATISTICS];

/// The statistics in the rows of a kind: `norm`, `absmax` and `zeros` (the share of zeros) of a tensor, or the names of
/// the numbers that replace them, at most three. Empty for a kind without rows: a script's own numbers are curves.
pub fn statistics_of(kind: &str) -> &'static [&'static str] {
    match Kind::from_name(kind) {
        Some(Kind::Scalar) => &[],
        Some(Kind::CommTime) => &["seconds", "algbw", "busbw"],
        Some(kind) if !kind.value_columns().is_empty() => kind.value_columns(),
        _ => &["norm", "absmax", "zeros"],
    }
}

/// The magnitude of a value as float32. Values beyond the range of float32 become the largest or smallest finite
/// magnitude, so that they do not look infinite or zero.
pub(crate) fn cell_value(value: f64) -> f32 {
    let magnitude = value.abs();
    if magnitude == 0.0 || !magnitude.is_finite() {
        return magnitude as f32;
    }
    magnitude.clamp(f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)) as f32
}

/// A record's cell. A statistic that was not measured has the reading's placeholder value.
pub(crate) fn cell_of(kind: Kind, reading: &Reading) -> Cell {
    match reading {
        Reading::Tensor(stats) => [cell_value(stats.norm), cell_value(stats.abs_max), cell_value(stats.zeros_ratio())],
        Reading::Values(values) => {
            // The size of a collective operation, its first number, is not informative by step.
            let numbers = if kind == Kind::CommTime { values.get().get(1..).unwrap_or(&[]) } else { values.get() };
            let mut cell = NO_CELL;
            for (place, &number) in cell.iter_mut().zip(numbers) {
                *place = cell_value(number);
            }
            cell
        }
    }
}

/// A row, for [`History::set`](crate::History::set).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowId(pub(crate) u32);

/// One tensor's measurements of one kind.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) kind: u16,
    pub(crate) name: Arc<str>,
    pub(crate) level: Level,
    /// By column, up to the capacity of the axis.
    cells: Box<[Cell]>,
}

impl Row {
    /// Raises the value of a column: the larger one is kept, with NaN as the largest.
    fn raise(&mut self, column: usize, cell: Cell) {
        if let Some(place) = self.cells.get_mut(column) {
            *place = larger(*place, cell);
        }
    }

    /// One statistic in the columns from `first` to `end`.
    pub(crate) fn values(&self, statistic: usize, first: usize, end: usize) -> impl Iterator<Item = f32> {
        self.cells[first.min(end)..end].iter().map(move |cell| cell[statistic])
    }

    fn follow(&mut self, change: AxisChange) {
        if let Some(columns) = change.truncated_to {
            self.cells[columns..].fill(NO_CELL);
        }
        if change.merged {
            let half = self.cells.len() / 2;
            for column in 0..half {
                self.cells[column] = larger(self.cells[2 * column], self.cells[2 * column + 1]);
            }
            self.cells[half..].fill(NO_CELL);
        }
    }
}

/// The larger of each pair of numbers, with NaN as the largest.
pub(crate) fn larger(a: Cell, b: Cell) -> Cell {
    let mut cell = a;
    for (place, value) in cell.iter_mut().zip(b) {
        // An existing NaN fails both tests and stays.
        if value > *place || value.is_nan() {
            *place = value;
        }
    }
    cell
}

/// All rows. Memory is allocated per row: 12 bytes per column, its name, and about 100 bytes.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    limit: usize,
    kinds: Vec<Arc<str>>,
    all: Vec<Row>,
    known: HashMap<(u16, Arc<str>), Option<RowId>>,
    left_out: u64,
}

impl Rows {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The row of a tensor, created if necessary; `None` above the limit, which is counted.
    pub(crate) fn row(&mut self, kind: &str, name: &str, columns: usize) -> Option<RowId> {
        if statistics_of(kind).is_empty() {
            return None;
        }
        let kind = self.kind(kind)?;
        let name: Arc<str> = name.into();
        if let Some(&row) = self.known.get(&(kind, Arc::clone(&name))) {
            return row;
        }
        if self.all.len() >= self.limit {
            self.left_out += 1;
            // A repeated tensor is counted once, while there is memory for its name.
            if self.known.len() < 2 * self.limit {
                self.known.insert((kind, name), None);
            }
            return None;
        }
        let row = RowId(self.all.len() as u32);
        let cells = vec![NO_CELL; columns].into_boxed_slice();
        self.all.push(Row { kind, name: Arc::clone(&name), level: Level::default(), cells });
        self.known.insert((kind, name), Some(row));
        Some(row)
    }

    fn kind(&mut self, name: &str) -> Option<u16> {
        let known = self.kinds.iter().position(|kind| **kind == *name);
        let index = known.unwrap_or_else(|| {
            self.kinds.push(name.into());
            self.kinds.len() - 1
        });
        u16::try_from(index).ok()
    }

    pub(crate) fn set(&mut self, row: RowId, step: u64, column: usize, cell: Cell) {
        let Some(row) = self.all.get_mut(row.0 as usize) else { return };
        row.raise(column, cell);
        if cell[0] != ABSENT {
            row.level.add(step, cell[0]);
        }
    }

    pub(crate) fn follow(&mut self, change: AxisChange) {
        if change != AxisChange::default() {
            self.all.iter_mut().for_each(|row| row.follow(change));
        }
    }

    pub(crate) fn resume(&mut self, step: u64) {
        self.all.iter_mut().for_each(|row| row.level.resume(step));
    }

    pub(crate) fn all(&self) -> &[Row] {
        &self.all
    }

    pub(crate) fn kinds(&self) -> &[Arc<str>] {
        &self.kinds
    }

    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use trainmon_core::TensorStats;

    use super::*;

    fn values(rows: &Rows, row: RowId, columns: usize) -> Vec<f32> {
        rows.all()[row.0 as usize].values(0, 0, columns).collect()
    }

    #[test]
    fn a_merged_column_holds_the_larger_value_and_nan_outranks_all() {
        let mut rows = Rows::new(4);
        let row = rows.row("grad_reduced", "w", 4).unwrap();
        for (column, norm) in [(0, 1.0), (1, 3.0), (2, f32::NAN), (3, 9.0)] {
            rows.set(row, column as u64, column, [norm, ABSENT, 0.0]);
        }
        rows.follow(AxisChange { truncated_to: None, merged: true });
        let merged = values(&rows, row, 4);
        assert_eq!((merged[0], merged[2], merged[3]), (3.0, ABSENT, ABSENT));
        assert!(merged[1].is_nan());
        rows.set(row, 5, 1, [1.0, ABSENT, 0.0]);
        assert!(values(&rows, row, 2)[1].is_nan(), "a later value does not cover it");
        rows.follow(AxisChange { truncated_to: Some(1), merged: false });
        assert_eq!(values(&rows, row, 4), [3.0, ABSENT, ABSENT, ABSENT]);
    }

    #[test]
    fn rows_above_the_limit_are_counted_once_each() {
        let mut rows = Rows::new(2);
        let all: Vec<Option<RowId>> = ["a", "b", "c", "a", "c"].map(|name| rows.row("update", name, 4)).into();
        assert_eq!(all, [Some(RowId(0)), Some(RowId(1)), None, Some(RowId(0)), None]);
        assert_eq!(rows.left_out(), 1);
        assert_eq!(rows.row("scalar", "accuracy", 4), None);
        assert_eq!(rows.left_out(), 1, "a kind without rows is not left out");
    }

    #[test]
    fn a_cell_is_a_magnitude_within_float32() {
        assert_eq!(cell_value(-2.0), 2.0);
        assert_eq!((cell_value(1e300), cell_value(1e-300)), (f32::MAX, f32::MIN_POSITIVE));
        assert_eq!((cell_value(0.0), cell_value(f64::NEG_INFINITY)), (0.0, f32::INFINITY));
        assert!(cell_value(f64::NAN).is_nan());
    }

    #[test]
    fn readings_become_cells_in_the_order_of_their_statistics() {
        let reading = TensorStats::of_value(-3.0).into();
        assert_eq!(cell_of(Kind::GradReduced, &reading), [3.0, 3.0, 0.0]);
        assert_eq!(statistics_of("grad_reduced"), ["norm", "absmax", "zeros"]);
        assert_eq!(cell_of(Kind::UpdateRatio, &Reading::of_values(&[0.5])), [0.5, ABSENT, ABSENT]);
        assert_eq!(statistics_of("update_ratio"), ["update_ratio"]);
        assert_eq!(cell_of(Kind::CommTime, &Reading::of_values(&[8.0, 0.5, 1.0, 2.0])), [0.5, 1.0, 2.0]);
        assert_eq!(statistics_of("comm_time"), ["seconds", "algbw", "busbw"]);
        for kind in Kind::ALL {
            assert!(statistics_of(kind.name()).len() <= STATISTICS, "{kind}");
        }
    }
}
