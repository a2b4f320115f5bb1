//! Buckets for the duration of a step and of the monitor's part in it, shared by all exporters.

use std::time::Duration;

use trainmon_core::{CollectiveSeries, Phase};

/// From a toy model on a CPU to a trillion parameters with a slow checkpoint in between.
pub(crate) const STEP_SECONDS: [f64; 14] =
    [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 300.0];
/// One percent of those steps, and far too much.
pub(crate) const COLLECT_SECONDS: [f64; 10] = [1e-5, 1e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.25, 1.0];

/// From shared memory to an operation that waits for a rank that writes a checkpoint.
pub(crate) const COLLECTIVE_SECONDS: [f64; 14] =
    [1e-5, 2.5e-5, 1e-4, 2.5e-4, 1e-3, 2.5e-3, 1e-2, 2.5e-2, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0];

/// The number of operations that took at most each of [`COLLECTIVE_SECONDS`], the number of all, and the sum of their
/// durations.
pub(crate) fn collective_durations(series: &CollectiveSeries) -> ([u64; 14], u64, Duration) {
    series.distribution(&COLLECTIVE_SECONDS.map(Duration::from_secs_f64))
}

/// The quantiles that are exported in addition to the buckets, by label.
pub(crate) const COLLECTIVE_QUANTILES: [(&str, f64); 3] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99)];

/// The phases in a batch: all except the export, which follows it.
pub(crate) fn phases_in_step() -> impl Iterator<Item = Phase> {
    Phase::ALL.into_iter().filter(|phase| phase.is_in_step())
}
