//! Rows that a run's files leave out since others say the same: put in again, as [`trainmon_core::Repeats`] left them out.

use std::collections::{HashMap, HashSet};

use trainmon_core::{Kind, LeftOut};

use super::names::Names;
use super::steps::{RowHead, StepRows};

/// What stands where a row is missing.
const NO_TENSOR: &str = "nan";

/// What the rows of a rank are read with.
pub(super) struct LeftOutRows {
    left_out: LeftOut,
    /// What the parameters became in the step read last, by tensor, with their numbers.
    updated: HashMap<u32, (RowHead, Vec<f64>)>,
    of_step: Option<u64>,
}

impl LeftOutRows {
    pub(super) fn new(left_out: LeftOut) -> Self {
        Self { left_out, updated: HashMap::new(), of_step: None }
    }

    /// Whether reading a step needs the rows of the step before.
    pub(super) fn looks_back(&self) -> bool {
        self.left_out.parameters
    }

    /// Puts in what was left out of a step.
    pub(super) fn fill_in(&mut self, names: &mut Names, rows: &mut StepRows) {
        let LeftOut { gradients, parameters } = self.left_out;
        if gradients {
            let (unreduced, reduced) = (names.kind(Kind::GradUnreduced.name()), names.kind(Kind::GradReduced.name()));
            let there = take_away_missing(names, rows, unreduced);
            for row in of_kind(names, rows, reduced) {
                let tensor = names.of_kind(row.tensor, unreduced);
                if !there.contains(&tensor) {
                    rows.rows.push(RowHead { tensor, ..row });
                }
            }
        }
        if parameters {
            let (origin, updated) = (names.kind(Kind::ParamOrigin.name()), names.kind(Kind::ParamUpdated.name()));
            let there = take_away_missing(names, rows, origin);
            let now = of_kind(names, rows, updated);
            let follows = self.of_step.is_some_and(|step| step.checked_add(1) == Some(rows.step));
            for row in now.iter().filter(|_| follows) {
                let tensor = names.of_kind(row.tensor, origin);
                let before = self.updated.get(&row.tensor).filter(|_| !there.contains(&tensor));
                if let Some((head, numbers)) = before {
                    rows.rows.push(RowHead { tensor, first: rows.values.len(), ..*head });
                    rows.values.extend(numbers);
                }
            }
            let numbers = |row: &RowHead| rows.values[row.first..][..names.columns_of(row.columns).len()].to_vec();
            self.updated = now.iter().map(|row| (row.tensor, (*row, numbers(row)))).collect();
            self.of_step = Some(rows.step);
        }
    }
}

fn of_kind(names: &Names, rows: &StepRows, kind: u16) -> Vec<RowHead> {
    rows.rows.iter().filter(|row| names.tensors[row.tensor as usize].kind == kind).copied().collect()
}

/// Takes away the rows of a kind that say that there is none. Gives the tensors that have a row of the kind.
fn take_away_missing(names: &Names, rows: &mut StepRows, kind: u16) -> HashSet<u32> {
    let there = of_kind(names, rows, kind).into_iter().map(|row| row.tensor).collect();
    let is_missing = |row: &RowHead| row.shape.is_some_and(|shape| names.shape_text(shape) == NO_TENSOR);
    rows.rows.retain(|row| names.tensors[row.tensor as usize].kind != kind || !is_missing(row));
    there
}
