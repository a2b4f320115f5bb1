//! The series of a watch. Look-ups need no hashing while the series keep the order of the previous step.

use std::collections::HashMap;

use smart_default::SmartDefault;
use trainmon_core::{Group, Kind, MicroStep, Statistic, TensorId};

use super::detect::Memory;
use super::rule_phase::RulePhase;

/// The key of a series in a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Which {
    Global,
    Group(Group),
    Layer(u32),
    Tensor { tensor: TensorId, kind: Option<Kind>, micro_step: MicroStep, statistic: Statistic },
}

/// One series.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) memory: Memory,
    pub(crate) rule_phase: RulePhase,
}

#[derive(Debug)]
struct Row {
    which: Which,
    series: Series,
    /// The row that followed this one last time.
    after: u32,
}

/// No row.
const NONE: u32 = u32::MAX;

/// Rows in the order of their first use, so that a step reads memory in order.
#[derive(Debug, SmartDefault)]
pub(crate) struct Table {
    rows: Vec<Row>,
    rows_of: HashMap<Which, u32>,
    /// The first row of the last step.
    #[default(NONE)]
    first: u32,
    /// The row used last.
    #[default(NONE)]
    last: u32,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Starts a step.
    pub(crate) fn rewind(&mut self) {
        self.last = NONE;
    }

    /// The position of a series; `None` if it is new. Cost: a comparison if the order is that of the previous step,
    /// else a hash look-up.
    pub(crate) fn find(&mut self, which: Which) -> Option<usize> {
        let expected = self.rows.get(self.last as usize).map_or(self.first, |row| row.after);
        let is_it = self.rows.get(expected as usize).is_some_and(|row| row.which == which);
        let row = if is_it { expected } else { *self.rows_of.get(&which)? };
        self.note(row);
        Some(row as usize)
    }

    /// Adds a series. Returns its position.
    pub(crate) fn add(&mut self, which: Which, series: Series) -> usize {
        let row = self.rows.len() as u32;
        self.rows.push(Row { which, series, after: NONE });
        self.rows_of.insert(which, row);
        self.note(row);
        row as usize
    }

    fn note(&mut self, row: u32) {
        match self.rows.get_mut(self.last as usize) {
            Some(last) => last.after = row,
            None => self.first = row,
        }
        self.last = row;
    }

    pub(crate) fn at(&mut self, place: usize) -> &mut Series {
        &mut self.rows[place].series
    }

    pub(crate) fn get(&self, which: Which) -> Option<&Series> {
        Some(&self.rows[*self.rows_of.get(&which)? as usize].series)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Which, &Series)> {
        self.rows.iter().map(|row| (row.which, &row.series))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainmon_core::{AlertRule, AlertSignal};

    fn series() -> Series {
        Series { memory: Memory::new(AlertRule::Dead, AlertSignal::Grad), rule_phase: RulePhase::default() }
    }

    #[test]
    fn series_are_found_in_any_order_and_with_gaps() {
        let mut table = Table::default();
        for layer in 0..5 {
            assert_eq!(table.find(Which::Layer(layer)), None);
            assert_eq!(table.add(Which::Layer(layer), series()), layer as usize);
        }
        for order in [&[0, 1, 2, 3, 4][..], &[0, 2, 3], &[4, 3, 2, 1, 0], &[0, 1, 2, 3, 4], &[1, 1], &[3]] {
            table.rewind();
            for &layer in order {
                assert_eq!(table.find(Which::Layer(layer)), Some(layer as usize), "{order:?}");
            }
            assert_eq!(table.find(Which::Global), None);
        }
        assert_eq!((table.len(), table.iter().count(), table.get(Which::Layer(3)).is_some()), (5, 5, true));
    }
}
