//! Fills the history from step batches, on the exporter's thread.

use std::sync::Arc;
use std::time::Instant;

use trainmon_core::{Alert, StepBatch, TensorInfo};
use trainmon_history::{HistoryFiller, StepFigures};

use super::LiveRun;
use crate::MeasuredStatistics;

/// Fills a run's history from its batches.
#[derive(Debug)]
pub(crate) struct HistoryWriter {
    live: Arc<LiveRun>,
    filler: HistoryFiller,
    budget: Option<f64>,
}

impl HistoryWriter {
    pub(crate) fn new(live: Arc<LiveRun>, measured: MeasuredStatistics, budget: Option<f64>) -> Self {
        Self { live, filler: HistoryFiller::of_training(|kind| measured.of(kind)), budget }
    }

    /// Adds a step.
    pub(crate) fn export(&mut self, names: &[TensorInfo], batch: &StepBatch, figures: &StepFigures, now: Instant) {
        let Self { live, filler, budget } = self;
        live.change(|state| {
            filler.add(&mut state.history, names, batch, figures);
            state.add_cost(batch, *budget);
            state.newest = Some((batch.step.0, now));
        });
    }

    /// Adds an alert.
    pub(crate) fn alert(&self, alert: &Alert) {
        self.live.change(|state| state.history.alert(alert.clone()));
    }
}
