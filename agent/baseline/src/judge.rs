//! What is known of one rank's series while its steps are judged (`judge_step`).
//!
//! Memory holds a few numbers per series, whatever the run's length.

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

/// What a comparison knows of each series.
#[derive(Debug, Default)]
pub(super) struct Series {
    pub(super) statistic: u16,
    /// In how many common steps it was.
    pub(super) seen: u32,
    /// How far the runs were apart in it.
    pub(super) farthest: f64,
    /// How far golden runs were.
    pub(super) spread: f64,
    /// Difference over bound, at most.
    pub(super) closest: f64,
    pub(super) has_parted: bool,
}

#[derive(Debug, Default)]
pub(super) struct TensorState {
    pub(super) series: Vec<Series>,
    pub(super) is_in: Sides,
    /// Common steps in which the other run alone has it.
    pub(super) gaps: [Gap; 2],
    /// The last common step, counted from 1, in which the target had it.
    pub(super) last_in_target: u64,
    pub(super) has_other_shape: bool,
    pub(super) has_other_type: bool,
}

/// Which runs have a tensor.
#[derive(Debug, Default)]
pub(super) struct Sides {
    pub(super) target: bool,
    pub(super) golden: bool,
}

/// All series of one statistic and kind.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// The largest median difference of any step so far, and of golden runs.
    pub(super) level: f64,
    pub(super) spread: f64,
    /// Differences of this step.
    pub(super) now: Vec<f64>,
    pub(super) spreads_now: Vec<f64>,
    pub(super) class: Option<(KindClass, StatisticClass)>,
}

/// What the step has shown so far, of kinds that come before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upstream {
    /// A high quantile of the differences.
    pub(super) level: f64,
    /// By what factor the median has grown.
    pub(super) growth: f64,
}

/// Judges the steps of one rank in their order.
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
    /// Common steps in which nothing differed, from the first on.
    pub(super) equal_steps: u64,
    pub(super) is_equal_so_far: bool,
    pub(super) steps: u64,
    /// The fewest steps from one to the next.
    pub(super) usual_gap: u64,
    /// The median difference of the step taken last (`take_found`).
    pub(super) last_noise: f64,
    /// How noisy the steps so far were.
    pub(super) last_level: f64,
    /// Where each tensor's row is in each golden run's step.
    pub(super) golden_rows: Vec<Vec<Option<u32>>>,
    pub(super) suspects: Suspects,
    pub(super) drift: Drift,
    /// Whether msprobe wrote one of the runs, and not the other.
    pub(super) are_two_writers: bool,
    /// Into how many micro-batches the runs divide this step, if not into as many.
    pub(super) division: Option<[u32; 2]>,
    /// Suspects of the step before that may be a jump.
    pub(super) held: Option<Suspects>,
    pub(super) blow_up: BlowUpWatch,
    pub(super) found: Judged,
}

/// A row and its like in the golden runs.
pub(super) struct Pair<'a> {
    pub(super) target: (&'a RowHead, &'a StepRows),
    /// The first golden run's, then those of the others that have it.
    pub(super) golden: Vec<(&'a RowHead, &'a StepRows)>,
    pub(super) kind: u16,
    pub(super) elements: Option<f64>,
    pub(super) facts: RowFacts,
    pub(super) magnitude: Magnitude,
    /// That of its elements in the target and the first golden run.
    pub(super) own: Option<[f64; 2]>,
    /// What its elements count as at least.
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
