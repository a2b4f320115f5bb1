//! The monitor's own cost: time per phase and step, bytes read.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use trainmon_core::{Phase, PhaseTimes};

/// The significant digits of the histograms: quantiles are exact to 1 %.
const DIGITS: u8 = 2;

/// Times per phase over the whole run, in nanoseconds.
#[derive(Debug)]
pub(crate) struct CostTotals(Mutex<Costs>);

#[derive(Debug)]
struct Costs {
    phases: Vec<Histogram<u64>>,
    steps: Histogram<u64>,
    /// In-step cost of the steps whose duration is known, and those durations.
    in_step: Duration,
    step_time: Duration,
    bytes_read: u64,
}

/// The monitor's cost over a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostSummary {
    /// Steps with a known duration.
    pub steps: u64,
    /// Median step duration, the monitor's work included.
    pub step_median: Duration,
    /// Median and 99th percentile per phase: per step for phases in the training thread, per batch and exporter for
    /// `Export`.
    pub phases: Vec<(Phase, Duration, Duration)>,
    /// The training thread's time spent in the monitor, as a share of the step, 0 to 1; NaN without a known duration.
    pub share_of_step: f64,
    /// The bytes of tensor memory read.
    pub bytes_read: u64,
}

impl CostTotals {
    /// Creates empty totals.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Costs {
            phases: Phase::ALL.iter().map(|_| histogram()).collect(),
            steps: histogram(),
            in_step: Duration::ZERO,
            step_time: Duration::ZERO,
            bytes_read: 0,
        }))
    }

    /// Adds one measurement of a phase.
    pub(crate) fn add(&self, phase: Phase, time: Duration) {
        self.0.lock().phases[phase as usize].saturating_record(nanoseconds(time));
    }

    /// Adds a step: its cost in the training thread and, unless it is the first, its duration.
    pub(crate) fn add_step(&self, cost: &PhaseTimes, duration: Option<Duration>, bytes_read: u64) {
        let mut costs = self.0.lock();
        for phase in Phase::ALL.into_iter().filter(|phase| phase.is_in_step()) {
            costs.phases[phase as usize].saturating_record(nanoseconds(cost.get(phase)));
        }
        costs.bytes_read += bytes_read;
        if let Some(duration) = duration {
            costs.steps.saturating_record(nanoseconds(duration));
            costs.in_step += cost.in_step();
            costs.step_time += duration;
        }
    }

    /// The totals so far.
    pub(crate) fn summary(&self) -> CostSummary {
        let costs = self.0.lock();
        let at = |histogram: &Histogram<u64>, quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        CostSummary {
            steps: costs.steps.len(),
            step_median: at(&costs.steps, 0.5),
            phases: Phase::ALL
                .into_iter()
                .map(|phase| (phase, at(&costs.phases[phase as usize], 0.5), at(&costs.phases[phase as usize], 0.99)))
                .collect(),
            share_of_step: costs.in_step.as_secs_f64() / costs.step_time.as_secs_f64(),
            bytes_read: costs.bytes_read,
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A histogram from 1 ns to an hour; longer times are recorded as an hour.
fn histogram() -> Histogram<u64> {
    const HOUR: u64 = 3_600_000_000_000;
    Histogram::new_with_bounds(1, HOUR, DIGITS).expect("the bounds are constants that the constructor accepts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_in_step_time_over_step_time() {
        let totals = CostTotals::new();
        let mut cost = PhaseTimes::default();
        cost.add(Phase::Measure, Duration::from_millis(1));
        cost.add(Phase::Export, Duration::from_secs(9));
        totals.add_step(&cost, None, 10);
        totals.add_step(&cost, Some(Duration::from_millis(100)), 10);
        let summary = totals.summary();
        assert!((summary.share_of_step - 0.01).abs() < 1e-9);
        assert_eq!((summary.steps, summary.bytes_read), (1, 20));
    }
}
