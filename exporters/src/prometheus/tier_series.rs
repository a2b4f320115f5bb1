//! The series of the layer and parameter tiers, created with the first value of a cell as long as the limit allows.

use std::sync::Arc;

use trainmon_core::PartTable;

use super::series::{SeriesId, Table, label_text};
use crate::MeasuredStatistics;
use crate::summary::{CellValue, Cells, MAX_FAMILIES, Tier};

/// How many series may still be created, and how many values were refused.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    /// How many series may still be created.
    pub(crate) left: usize,
    /// Values not served in this step because their series was refused.
    pub(crate) refused_values: u64,
}

/// A series in the table, or a refused one. A refused series is never created later, so that the page's set of series
/// is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Unasked,
    Refused,
    Made(SeriesId),
}

/// A tier's cells with their series.
#[derive(Debug)]
pub(crate) struct TierSeries {
    pub(crate) cells: Cells,
    /// The index of the tier's first family in the table.
    first_family: usize,
    slots: Vec<[Slot; MAX_FAMILIES]>,
}

impl TierSeries {
    pub(crate) fn new(tier: Tier, first_family: usize, measured: MeasuredStatistics, parts: &Arc<PartTable>) -> Self {
        Self { cells: Cells::new(tier, measured, parts), first_family, slots: Vec::new() }
    }

    /// Ends the step: writes the sums of its cells into the table.
    pub(crate) fn flush(&mut self, table: &mut Table, budget: &mut Budget) {
        let Self { cells, first_family, slots } = self;
        cells.flush(|CellValue { cell, family, value, name }| {
            if slots.len() <= cell {
                slots.resize(cell + 1, [Slot::Unasked; MAX_FAMILIES]);
            }
            let slot = &mut slots[cell][family];
            match *slot {
                Slot::Made(series) => table.set(series, value),
                Slot::Unasked if budget.left > 0 => {
                    budget.left -= 1;
                    let labels = name.labels();
                    let labels = labels.each_ref().map(|(name, value)| (*name, &**value));
                    *slot = Slot::Made(table.add(*first_family + family, &label_text(&labels), value));
                }
                Slot::Unasked | Slot::Refused => {
                    *slot = Slot::Refused;
                    budget.refused_values += 1;
                }
            }
        });
    }
}
