//! `Spike` on a loss: a rise far above the median of the last values.
//!
//! A loss has its own scale: it starts at the logarithm of the vocabulary size and changes by a few hundredths of
//! itself from batch to batch. A bad batch exceeds that by ten median deviations, in about one step in a hundred. If
//! these were learnt as the tail of the series (as for norms, whose tails are heavy), such steps would hide one
//! another.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use trainmon_core::config::RuleArgs;
use trainmon_core::{Expectation, median_of, number};

use super::beginning;
use super::spike::{power, root};

/// The limit in median absolute deviations, ten for the rule's default threshold (4). One in 10^11 normal values is as
/// far.
const DEVIATIONS_PER_THRESHOLD: f64 = 2.5;
/// The same for fourth roots: near zero, at the end of a classification, losses vary in proportion to themselves. At
/// three hundredths of the level, both limits are equal.
const OF_ROOTS_PER_THRESHOLD: f64 = 2.2;
/// Rises that are this frequent are normal for the series: public pretraining logs have one in 200 steps.
const MOST_RISES: f64 = 0.0125;
/// For such series the limit is this many times as far, and this many times the average height of the rises.
const FREQUENT: f64 = 4.0;
const HIGHER: f64 = 2.0;
/// The weight of a rise's height in their average.
const SHARE_OF_LAST: f64 = 1.0 / 16.0;
/// The number of steps over which the frequency is averaged, and the assumption before the first rise: none in so many.
const HORIZON: f64 = 4_096.0;
const ASSUMED: f64 = 1_024.0;

/// The window of the last values, and the frequency of rises.
#[derive(Clone, Debug, PartialEq, SmartDefault, Serialize, Deserialize)]
pub(crate) struct LossSpike {
    #[serde(with = "number::list")]
    values: VecDeque<f64>,
    /// The number of steps counted, with older ones fading, and how many of them began a rise.
    #[serde(with = "number")]
    #[default(ASSUMED)]
    seen: f64,
    #[serde(with = "number")]
    rises: f64,
    /// The average height of rises above the median.
    #[serde(with = "number")]
    height: f64,
    /// Whether the last value was a rise.
    is_risen: bool,
}

impl LossSpike {
    /// Adds a value and checks whether it is above the limit. Values that are not finite are ignored. Cost: two partial
    /// sorts of the window.
    pub(crate) fn observe(&mut self, args: &RuleArgs, value: f64) -> Option<Expectation> {
        if !value.is_finite() {
            return None;
        }
        let found = if self.values.len() < args.min_samples.max(1) {
            beginning::loss(&self.values, value)
        } else {
            self.look(args, value)
        };
        while self.values.len() >= args.window.max(1) {
            self.values.pop_front();
        }
        self.values.push_back(value);
        found
    }

    fn look(&mut self, args: &RuleArgs, value: f64) -> Option<Expectation> {
        let mut room: Vec<f64> = self.values.iter().copied().collect();
        let median = median_of(&mut room);
        for one in &mut room {
            *one = (*one - median).abs();
        }
        let threshold = args.threshold.unwrap_or_default();
        let far =
            (DEVIATIONS_PER_THRESHOLD * threshold * median_of(&mut room)).max(self.far_by_roots(threshold, median));
        // Applies however little the window varies.
        let floor = (args.floor.unwrap_or(1.0) - 1.0) * median.abs();
        let is_frequent = self.rises > MOST_RISES * self.seen;
        let above = if is_frequent { (FREQUENT * far).max(HIGHER * self.height) } else { far };
        self.count(value - median, far.max(floor));
        // A level that returns with a rounding error is no rise.
        let upper = median + above.max(floor) + 1e-12 * median.abs();
        (value > upper).then_some(Expectation { typical: Some(median), lower: None, upper: Some(upper) })
    }

    /// The distance from the median to the limit by fourth roots.
    fn far_by_roots(&self, threshold: f64, median: f64) -> f64 {
        let middle = root(median);
        let mut distances: Vec<f64> = self.values.iter().map(|&value| (root(value) - middle).abs()).collect();
        power(middle + OF_ROOTS_PER_THRESHOLD * threshold * median_of(&mut distances)) - median
    }

    /// Counts a rise. One that lasts counts once, so that it does not become normal for the series.
    fn count(&mut self, height: f64, least: f64) {
        let keep = 1.0 - 1.0 / HORIZON;
        if self.seen > HORIZON {
            self.seen *= keep;
            self.rises *= keep;
        }
        self.seen += 1.0;
        let is_rise = height > least;
        if is_rise && !self.is_risen {
            self.rises += 1.0;
            let share = if self.height > 0.0 { SHARE_OF_LAST } else { 1.0 };
            self.height += share * (height - self.height);
        }
        self.is_risen = is_rise;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::calm;
    use super::*;
    use trainmon_core::AlertRule;

    fn args() -> RuleArgs {
        RuleArgs { floor: Some(1.1), ..RuleArgs::of_rule(AlertRule::Spike) }
    }

    /// The steps in which something is found.
    fn found(values: impl IntoIterator<Item = f64>) -> Vec<usize> {
        let mut spike = LossSpike::default();
        let hits = values.into_iter().enumerate().filter(|&(_, value)| spike.observe(&args(), value).is_some());
        hits.map(|(step, _)| step).collect()
    }

    #[test]
    fn bad_batches_hide_no_later_one() {
        let loss = |step: usize| 3.0 + 0.1 * (calm(step) - 1.0);
        let is_bad = |step: usize| step >= 64 && step.is_multiple_of(250);
        let bad: Vec<usize> = (0..10_000).filter(|&step| is_bad(step)).collect();
        assert_eq!(found((0..10_000).map(|step| if is_bad(step) { 4.5 } else { loss(step) })), bad);
    }

    #[test]
    fn rises_that_come_all_the_time_are_the_series_way_and_a_large_one_is_still_told() {
        let series = |step: usize| match step {
            6_000 => 60.0,
            _ if step.is_multiple_of(40) => 3.0 + 1.0 + (step % 7) as f64 * 0.1,
            _ => 3.0 + 0.3 * (calm(step) - 1.0),
        };
        let hits = found((0..8_000).map(series));
        assert!(hits.iter().all(|&hit| hit < 2_000 || hit == 6_000) && hits.contains(&6_000), "{hits:?}");
    }

    #[test]
    fn a_level_that_stays_is_told_until_the_window_has_it() {
        let hits = found((0..600).map(|step| if step < 300 { calm(step) } else { 2.0 * calm(step) }));
        assert!(hits.starts_with(&(300..340).collect::<Vec<_>>()) && hits.iter().all(|&hit| hit < 364), "{hits:?}");
    }

    #[test]
    fn a_falling_and_a_constant_loss_are_calm_and_one_below_zero_has_a_band_too() {
        assert!(found((0..2_000).map(|step| 10.0 / (1.0 + step as f64 / 50.0) + 0.1 * calm(step))).is_empty());
        assert!(found(std::iter::repeat_n(2.5, 500)).is_empty());
        let below = |step: usize| if step == 300 { -3.0 } else { -5.0 + 0.1 * calm(step) };
        assert_eq!(found((0..400).map(below)), [300]);
    }
}
