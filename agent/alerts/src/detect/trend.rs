//! Slow changes that no spike rule detects: a fast average against a slow one.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use trainmon_core::config::RuleArgs;
use trainmon_core::{Expectation, number};

use super::average::Average;

/// `Vanishing`: the number of steps of the slow average.
const SLOW: f64 = 2_048.0;
/// `Vanishing`: the number of steps of the fast average, short enough to report soon.
const VANISHING_QUICK: f64 = 32.0;
/// `Drift`: the number of steps of the fast average, long enough to ignore a spike of a few steps.
const DRIFT_QUICK: f64 = 64.0;
/// `Drift`: the number of steps of a second, longer average, so that a short plateau is no drift.
const DRIFT_MIDDLE: f64 = 256.0;
/// `Drift`: the interval at which the longer average is stored for later comparison.
const MARK_STEPS: u64 = 256;
/// `Drift`: the number of stored averages. The oldest, about 2,000 steps old, is the baseline.
const MARKS: usize = 8;
/// `Drift`: values are capped at this multiple of the fast average.
const WINSOR: f64 = 3.0;

/// The averages. Magnitudes only; values that are not finite are skipped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trend {
    quick: Average,
    slow: Average,
    /// Earlier values of the slow average, oldest first.
    #[serde(with = "number::list")]
    marks: VecDeque<f64>,
    seen: u64,
    /// `Drift` on a loss: whether a value was zero or negative.
    #[serde(default)]
    is_signed: bool,
}

impl Trend {
    /// Checks whether the fast average is below the threshold's share of the slow one.
    pub(crate) fn vanishing(&mut self, args: &RuleArgs, value: f64) -> Option<Expectation> {
        let (quick, slow) = self.add(value, VANISHING_QUICK, SLOW)?;
        let lower = args.threshold.unwrap_or_default() * slow;
        let found = self.seen > args.min_samples as u64 && quick < lower;
        found.then_some(Expectation { typical: Some(slow), lower: Some(lower), upper: None })
    }

    /// Checks whether the fast and the slow average both exceed the baseline by the threshold's factor.
    pub(crate) fn drift(&mut self, args: &RuleArgs, value: f64) -> Option<Expectation> {
        let (quick, middle) = self.add_to_drift(value)?;
        let baseline = *self.marks.front()?;
        let upper = args.threshold.unwrap_or_default() * baseline;
        let found = self.seen > args.min_samples as u64 && quick > upper && middle > upper;
        found.then_some(Expectation { typical: Some(baseline), lower: None, upper: Some(upper) })
    }

    /// Checks whether the fast average of a loss exceeds the lowest slow average of the last 2,000 steps or so by the
    /// threshold's factor. A loss falls, so its level long ago is too high to compare with.
    pub(crate) fn drift_of_loss(&mut self, args: &RuleArgs, value: f64) -> Option<Expectation> {
        // A loss that crosses zero has no level to compare with.
        self.is_signed |= value <= 0.0;
        let (quick, middle) = self.add_to_drift(value)?;
        if self.is_signed {
            return None;
        }
        let lowest = self.marks.iter().copied().fold(middle, f64::min);
        let upper = args.threshold.unwrap_or_default() * lowest;
        let found = self.seen > args.min_samples as u64 && quick > upper;
        found.then_some(Expectation { typical: Some(lowest), lower: None, upper: Some(upper) })
    }

    /// Adds a capped value and stores the slow average from time to time. Returns the fast and the slow average.
    fn add_to_drift(&mut self, value: f64) -> Option<(f64, f64)> {
        let limit = self.quick.get().map_or(f64::INFINITY, |quick| WINSOR * quick);
        // After zeros the average is 0, which would cap every later value to 0.
        let limit = if limit > 0.0 { limit } else { f64::INFINITY };
        let value = if value.is_finite() { value.abs().min(limit) } else { value };
        let (quick, middle) = self.add(value, DRIFT_QUICK, DRIFT_MIDDLE)?;
        if self.seen.is_multiple_of(MARK_STEPS) {
            if self.marks.len() == MARKS {
                self.marks.pop_front();
            }
            self.marks.push_back(middle);
        }
        Some((quick, middle))
    }

    /// Adds a value. Returns the fast and the slow average; `None` if it is not finite.
    fn add(&mut self, value: f64, quick_horizon: f64, slow_horizon: f64) -> Option<(f64, f64)> {
        let magnitude = value.abs();
        if !magnitude.is_finite() {
            return None;
        }
        self.quick.add(magnitude, quick_horizon);
        self.slow.add(magnitude, slow_horizon);
        self.seen = self.seen.saturating_add(1);
        Some((self.quick.get()?, self.slow.get()?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::calm;
    use super::*;
    use trainmon_core::AlertRule;

    fn drift_hits(values: impl IntoIterator<Item = f64>) -> Vec<usize> {
        let (mut trend, args) = (Trend::default(), RuleArgs::of_rule(AlertRule::Drift));
        values.into_iter().enumerate().filter(|&(_, x)| trend.drift(&args, x).is_some()).map(|(i, _)| i).collect()
    }

    fn vanishing_hits(values: impl IntoIterator<Item = f64>) -> Vec<usize> {
        let (mut trend, args) = (Trend::default(), RuleArgs::of_rule(AlertRule::Vanishing));
        values.into_iter().enumerate().filter(|&(_, x)| trend.vanishing(&args, x).is_some()).map(|(i, _)| i).collect()
    }

    /// The usual beginning of a training: fast, then slower and slower.
    fn decaying(step: usize) -> f64 {
        calm(step) * (0.25 + 2.0 * (-(step as f64) / 300.0).exp())
    }

    #[test]
    fn the_usual_fall_of_a_training_is_neither() {
        assert_eq!(drift_hits((0..8_000).map(decaying)), [0usize; 0]);
        assert_eq!(vanishing_hits((0..8_000).map(decaying)), [0usize; 0]);
    }

    #[test]
    fn a_rise_over_a_thousand_steps_is_a_drift_and_one_spike_is_not() {
        let rising = |step: usize| calm(step) * (1.0 + step.saturating_sub(2_000) as f64 / 1_000.0);
        let found = drift_hits((0..4_000).map(rising));
        assert!(found.first().is_some_and(|&first| (2_500..3_500).contains(&first)), "{:?}", found.first());
        assert_eq!(drift_hits((0..4_000).map(|step| if step % 500 == 0 { 100.0 } else { calm(step) })), [0usize; 0]);
    }

    fn loss_hits(values: impl IntoIterator<Item = f64>) -> Vec<usize> {
        let (mut trend, args) = (Trend::default(), RuleArgs::of_rule(AlertRule::Drift));
        let hits = values.into_iter().enumerate().filter(|&(_, x)| trend.drift_of_loss(&args, x).is_some());
        hits.map(|(step, _)| step).collect()
    }

    #[test]
    fn a_loss_that_rises_again_is_told_within_two_hundred_steps_and_one_that_falls_is_not() {
        let falling = |step: usize| calm(step) * (2.0 + 8.0 * (-(step as f64) / 300.0).exp());
        assert_eq!(loss_hits((0..8_000).map(falling)), [0usize; 0]);
        let rising = |step: usize| falling(step) + (0.01 * step.saturating_sub(2_000) as f64).min(6.0);
        let found = loss_hits((0..3_000).map(rising));
        assert!(found.first().is_some_and(|&first| (2_000..2_200).contains(&first)), "{:?}", found.first());
        let with_spikes = |step: usize| if step.is_multiple_of(300) { 40.0 } else { falling(step) };
        assert_eq!(loss_hits((0..4_000).map(with_spikes)), [0usize; 0]);
        assert_eq!(loss_hits((0..6_000).map(|step| 2.0 - f64::from(step) / 1_500.0)), [0usize; 0], "through zero");
        assert_eq!(loss_hits((0..2_000).map(|step| if step == 900 { f64::NAN } else { calm(step) })), [0usize; 0]);
    }

    #[test]
    fn a_fall_to_a_hundredth_is_vanishing_within_a_hundred_steps() {
        let falling = |step: usize| if step < 1_000 { calm(step) } else { 0.01 * calm(step) };
        let found = vanishing_hits((0..1_300).map(falling));
        assert!(found.first().is_some_and(|&first| (1_000..1_100).contains(&first)), "{:?}", found.first());
    }

    #[test]
    fn a_series_that_wakes_up_after_zeros_counts_again() {
        assert!(!drift_hits((0..2_000).map(|step| if step < 1_000 { 0.0 } else { calm(step) })).is_empty());
    }
}
