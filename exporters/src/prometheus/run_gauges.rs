//! The run's own gauges. They are always served; the series limit applies to the layer and parameter tiers, and to
//! numbers that a script logs.

use trainmon_core::Group;
use trainmon_core::catalog::{
    GRAD_NORM, GRAD_NORM_SELF_CHECK, GROUP_GRAD_NORM_SHARE, LAST_STEP_TIMESTAMP, LEARNING_RATE, LOSS, Metric,
    OVERHEAD_BUDGET, SAMPLING, SCALAR, STEP, TOP_GRAD_NORM, UPDATE_NORM, UPDATE_RATIO,
};

use super::series::{SeriesId, Table};
use crate::summary::MAX_TOP;

/// A gauge of the run, in page order. Its index is that of its family in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunGauge {
    Step,
    LastStepTimestamp,
    Loss,
    LearningRate,
    /// Its series are in [`ScalarSeries`](super::scalar_series::ScalarSeries).
    Scalar,
    GradNorm,
    GradNormSelfCheck,
    UpdateNorm,
    UpdateRatio,
    TopGradNorm,
    GroupShare,
    OverheadBudget,
    Sampling,
}

impl RunGauge {
    /// All gauges with their metrics, in the order of the enum.
    const ALL: [(Self, Metric); 13] = [
        (Self::Step, STEP),
        (Self::LastStepTimestamp, LAST_STEP_TIMESTAMP),
        (Self::Loss, LOSS),
        (Self::LearningRate, LEARNING_RATE),
        (Self::Scalar, SCALAR),
        (Self::GradNorm, GRAD_NORM),
        (Self::GradNormSelfCheck, GRAD_NORM_SELF_CHECK),
        (Self::UpdateNorm, UPDATE_NORM),
        (Self::UpdateRatio, UPDATE_RATIO),
        (Self::TopGradNorm, TOP_GRAD_NORM),
        (Self::GroupShare, GROUP_GRAD_NORM_SHARE),
        (Self::OverheadBudget, OVERHEAD_BUDGET),
        (Self::Sampling, SAMPLING),
    ];

    /// The families of these gauges, the first ones of the table.
    pub(crate) fn metrics() -> Vec<Metric> {
        Self::ALL.into_iter().map(|(_, metric)| metric).collect()
    }

    /// The maximum number of series of these gauges, the gradient norm's z-score and the interval's maximum.
    pub(crate) fn most_series(top_k: usize) -> usize {
        let single = 10;
        let ratios = 2;
        let maximum_and_its_step = 2;
        single + ratios + maximum_and_its_step + Group::ALL.len() + top_k.min(MAX_TOP)
    }
}

/// Series by gauge and member (a slot, a group), created with their first value: an unknown loss is not 0.
#[derive(Debug, Default)]
pub(crate) struct RunSeries(Vec<((RunGauge, usize), SeriesId)>);

impl RunSeries {
    /// Sets a gauge without labels; `None` keeps its last value.
    pub(crate) fn set(&mut self, table: &mut Table, gauge: RunGauge, value: Option<f64>) {
        if let Some(value) = value {
            self.set_member(table, gauge, 0, String::new, value);
        }
    }

    /// Removes the values of all members of a gauge.
    pub(crate) fn forget(&mut self, table: &mut Table, gauge: RunGauge) {
        for &(_, series) in self.0.iter().filter(|((of, _), _)| *of == gauge) {
            table.set(series, f64::NAN);
        }
    }

    /// Sets one member of a gauge with labels. `labels` is called once.
    pub(crate) fn set_member(
        &mut self,
        table: &mut Table,
        gauge: RunGauge,
        member: usize,
        labels: impl FnOnce() -> String,
        value: f64,
    ) {
        if let Some(&(_, series)) = self.0.iter().find(|(key, _)| *key == (gauge, member)) {
            table.set(series, value);
        } else {
            self.0.push(((gauge, member), table.add(gauge as usize, &labels(), value)));
        }
    }
}
