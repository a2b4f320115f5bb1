//! The state of one rank's series while its steps are judged (`judge_step`).
//!
//! Memory holds a few numbers per series, regardless of the run's length.

use std::collections::HashMap;
use std::sync::Arc;

use super::blow_up::BlowUpWatch;
use super::drift::Drift;
use super::found::{Gap, Judged};
use super::magnitude::{ColumnsPlan, Magnitude};
use super::names::Names;
use super::noise::{KindClass, RowFacts, StatisticClass};
use super::steps::{RowHead, StepRows};
use super::suspects::Suspects;

/// The state of a series.
#[derive(Debug, Default)]
pub(super) struct Series {
    pub(super) statistic: u16,
    /// The number of common steps that contained it.
    pub(super) seen: u32,
    /// The largest difference of the runs.
    pub(super) farthest: f64,
    /// The largest difference between golden runs.
    pub(super) spread: f64,
    /// The largest difference divided by the tolerance.
    pub(super) closest: f64,
    pub(super) has_parted: bool,
}

#[derive(Debug, Default)]
pub(super) struct TensorState {
    pub(super) series: Vec<Series>,
    pub(super) is_in: Sides,
    /// Common steps in which only the other run has it.
    pub(super) gaps: [Gap; 2],
    /// The last common step, counted from 1, in which the target had it.
    pub(super) last_in_target: u64,
    pub(super) has_other_shape: bool,
    pub(super) has_other_type: bool,
}

/// The state of a tensor, and which runs have it.
#[derive(Debug, Default)]
pub(super) struct Sides {
    pub(super) target: bool,
    pub(super) golden: bool,
}

/// All series of one statistic and kind.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// The largest median difference of any step so far, including between golden runs.
    pub(super) level: f64,
    pub(super) spread: f64,
    /// The differences in this step.
    pub(super) now: Vec<f64>,
    pub(super) spreads_now: Vec<f64>,
    pub(super) class: Option<(KindClass, StatisticClass)>,
}

/// The noise that earlier kinds have shown in this step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upstream {
    /// A high quantile of the differences.
    pub(super) level: f64,
    /// The growth factor of the median.
    pub(super) growth: f64,
}

/// Judges the steps of one rank in order.
#[derive(Default)]
pub(super) struct Judge {
    pub(super) rank: u32,
    pub(super) golden_runs: usize,
    pub(super) coarsest: f64,
    pub(super) tensors: Vec<TensorState>,
    /// By kind and statistic.
    pub(super) groups: HashMap<(u16, u16), Group>,
    pub(super) plans: Vec<Option<Arc<ColumnsPlan>>>,
    pub(super) nothing: Vec<bool>,
    /// The number of common steps without any difference, from the first on.
    pub(super) equal_steps: u64,
    pub(super) is_equal_so_far: bool,
    pub(super) steps: u64,
    /// The smallest distance between consecutive steps.
    pub(super) usual_gap: u64,
    /// The median difference of the step taken last (`take_found`).
    pub(super) last_noise: f64,
    /// The noise level of the steps so far.
    pub(super) last_level: f64,
    /// The position of each tensor's row in each golden run's step.
    pub(super) golden_rows: Vec<Vec<Option<u32>>>,
    pub(super) suspects: Suspects,
    pub(super) drift: Drift,
    /// Whether msprobe wrote exactly one of the runs.
    pub(super) are_two_writers: bool,
    /// The numbers of micro-batches in this step, if they differ.
    pub(super) division: Option<[u32; 2]>,
    /// Suspects of the previous step that may be a jump.
    pub(super) held: Option<Suspects>,
    pub(super) blow_up: BlowUpWatch,
    pub(super) found: Judged,
}

/// A row and the matching rows in the golden runs.
pub(super) struct Pair<'a> {
    pub(super) target: (&'a RowHead, &'a StepRows),
    /// The first golden run's row, then those of the others that have it.
    pub(super) golden: Vec<(&'a RowHead, &'a StepRows)>,
    pub(super) kind: u16,
    pub(super) elements: Option<f64>,
    pub(super) facts: RowFacts,
    pub(super) magnitude: Magnitude,
    /// The magnitude of its elements in the target and the first golden run.
    pub(super) own: Option<[f64; 2]>,
    /// The lower limit for the magnitude of its elements.
    pub(super) least: f64,
    pub(super) place: (u8, usize),
}

impl Judge {
    pub(super) fn new(rank: u32, golden_runs: usize, computed_in: f64) -> Self {
        Self {
            rank,
            golden_runs,
            coarsest: computed_in,
            is_equal_so_far: true,
            usual_gap: u64::MAX,
            golden_rows: vec![Vec::new(); golden_runs],
            ..Self::default()
        }
    }

    pub(super) fn plan(&mut self, names: &Names, columns: u16) -> Arc<ColumnsPlan> {
        let place = usize::from(columns);
        if self.plans.len() <= place {
            self.plans.resize(place + 1, None);
        }
        let plan = self.plans[place].get_or_insert_with(|| Arc::new(ColumnsPlan::of(names, columns)));
        Arc::clone(plan)
    }
}
