//! The exporter's own counters and histograms: few, so the `prometheus` crate encodes them.

use std::io;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, TextEncoder};
use trainmon_core::catalog::{
    BYTES_READ, COLLECT_DURATION, GRAD_NORM_MISMATCHES, Metric, NONFINITE_ELEMENTS, SCRAPE_DURATION, SERIES_OVERFLOW,
    SKIPPED_STEPS, STEP_DURATION, STEPS,
};
use trainmon_core::{Kind, Reading, Record, StepBatch};

use crate::summary::{COLLECT_SECONDS, STEP_SECONDS, nonfinite_elements, phases_in_step, tensor_label};
use crate::{ExportError, MeasuredStatistics};

/// The target is 5 ms for 10,000 series.
const SCRAPE_SECONDS: [f64; 6] = [5e-4, 1e-3, 2.5e-3, 5e-3, 2.5e-2, 0.25];

/// Updated as steps arrive; read at a scrape without a lock of its own.
#[derive(Debug)]
pub(crate) struct Counters {
    steps: IntCounter,
    skipped_steps: IntCounter,
    norm_mismatches: IntCounter,
    step_seconds: Histogram,
    nonfinite: IntCounterVec,
    /// The children of `nonfinite` by kind; none for kinds without tensors.
    nonfinite_by_kind: Vec<Option<IntCounter>>,
    bytes_read: IntCounter,
    collect: HistogramVec,
    overflow: IntCounter,
    scrape: Histogram,
}

impl Counters {
    /// Everything starts at 0, including labelled children: `increase()` does not see a counter that starts at 1.
    pub(crate) fn new() -> Result<Self, ExportError> {
        Self::build().map_err(|error| ExportError::Start { what: "metric counters", source: io::Error::other(error) })
    }

    fn build() -> prometheus::Result<Self> {
        let counter = |metric: &Metric| IntCounter::with_opts(Opts::new(metric.name, metric.help));
        let histogram =
            |metric: &Metric, buckets: &[f64]| HistogramOpts::new(metric.name, metric.help).buckets(buckets.to_vec());
        let nonfinite =
            IntCounterVec::new(Opts::new(NONFINITE_ELEMENTS.name, NONFINITE_ELEMENTS.help), NONFINITE_ELEMENTS.labels)?;
        let nonfinite_of = |kind: Kind| {
            let is_tensor =
                kind.value_columns().is_empty() && !matches!(kind, Kind::MgDirection | Kind::Adhoc | Kind::Comm);
            is_tensor.then(|| nonfinite.get_metric_with_label_values(&[tensor_label(kind)])).transpose()
        };
        let nonfinite_by_kind = Kind::ALL.into_iter().map(nonfinite_of).collect::<prometheus::Result<_>>()?;
        let collect = HistogramVec::new(histogram(&COLLECT_DURATION, &COLLECT_SECONDS), COLLECT_DURATION.labels)?;
        for phase in phases_in_step() {
            collect.get_metric_with_label_values(&[phase.name()])?;
        }
        Ok(Self {
            steps: counter(&STEPS)?,
            skipped_steps: counter(&SKIPPED_STEPS)?,
            norm_mismatches: counter(&GRAD_NORM_MISMATCHES)?,
            step_seconds: Histogram::with_opts(histogram(&STEP_DURATION, &STEP_SECONDS))?,
            nonfinite,
            nonfinite_by_kind,
            bytes_read: counter(&BYTES_READ)?,
            collect,
            overflow: counter(&SERIES_OVERFLOW)?,
            scrape: Histogram::with_opts(histogram(&SCRAPE_DURATION, &SCRAPE_SECONDS))?,
        })
    }

    /// Counts a step.
    pub(crate) fn add_step(&self, batch: &StepBatch) {
        self.steps.inc();
        self.skipped_steps.inc_by(batch.skipped_steps);
        self.norm_mismatches.inc_by(u64::from(batch.grad_norm_check().is_some_and(|check| !check.agrees())));
        if let Some(duration) = batch.duration {
            self.step_seconds.observe(duration.as_secs_f64());
        }
        self.bytes_read.inc_by(batch.bytes_read);
        for phase in phases_in_step() {
            self.collect.with_label_values(&[phase.name()]).observe(batch.cost.get(phase).as_secs_f64());
        }
    }

    /// Counts a reading. A gradient read before and after reduction counts twice.
    pub(crate) fn add_reading(&self, record: &Record, reading: &Reading, measured: MeasuredStatistics) {
        let nonfinite = nonfinite_elements(reading, record.kind, measured);
        if let Some(counter) = self.nonfinite_by_kind[record.kind as usize].as_ref().filter(|_| nonfinite > 0) {
            counter.inc_by(nonfinite);
        }
    }

    /// Counts values dropped at the series limit.
    pub(crate) fn add_overflow(&self, values: u64) {
        self.overflow.inc_by(values);
    }

    /// Counts a rendered page.
    pub(crate) fn add_scrape(&self, took: Duration) {
        self.scrape.observe(took.as_secs_f64());
    }

    /// Appends every family.
    pub(crate) fn render(&self, page: &mut String) -> prometheus::Result<()> {
        let Self { steps, skipped_steps, norm_mismatches, step_seconds, nonfinite, .. } = self;
        let Self { bytes_read, collect, overflow, scrape, .. } = self;
        let all: [&dyn Collector; 9] =
            [steps, skipped_steps, norm_mismatches, step_seconds, nonfinite, bytes_read, collect, overflow, scrape];
        let families: Vec<_> = all.into_iter().flat_map(Collector::collect).collect();
        TextEncoder::new().encode_utf8(&families, page)
    }
}
