//! `Spike`: a rise far outside of the range that the last values predict.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use trainmon_core::config::RuleArgs;
use trainmon_core::{Expectation, number};

use super::beginning;
use super::tail::{Marks, PAIR, SINGLE, Tail};

/// The threshold that the learnt tails refer to. For other thresholds, the limits are proportional.
const USUAL_THRESHOLD: f64 = 4.0;
/// The minimum that two values in a row must both exceed, as a share of the threshold.
const PAIR_SHARE: f64 = 0.375;
/// A single step is a spike only above this multiple of the floor: in healthy trainings, hard batches alone reach twice
/// the usual norm and more, while faults last.
const ALONE: f64 = 1.45;
/// The minimum of the smaller of two values in a row, as a multiple of the floor.
const SECOND: f64 = 0.8;
/// The minimum of the larger of two values in a row, as a multiple of the floor.
const OF_TWO: f64 = 1.15;
/// A value of this many times the usual one is a spike whatever the tail: a run that diverges must not be learnt as
/// normal.
const CEILING: f64 = 9.0;
/// The exception is wide residuals: the smallest residual for the ceiling, as a multiple of the threshold.
const CEILING_SHARE: f64 = 1.2;
/// Values enter the window capped at this many deviations above the expected value.
const WINSOR: f64 = 3.0;
/// The highest assumed correlation of neighbouring values.
const MAX_CORRELATION: f64 = 0.95;
/// The number of steps after a finding during which no tail is learnt.
const DISORDER_STEPS: u32 = 64;

/// The signed fourth root. Norms vary in proportion to their level, similar to log-normal numbers; their roots vary
/// evenly and, unlike logarithms, exist for zero and below. Exact to the last bit on every processor.
pub(super) fn root(value: f64) -> f64 {
    value.abs().sqrt().sqrt().copysign(value)
}

/// The value of a root.
pub(super) fn power(root: f64) -> f64 {
    let square = root * root;
    (square * square).copysign(root)
}

/// The window of the last values, and the learnt tails of their residuals.
///
/// All computations use fourth roots. Expected value: the window's mean, shifted towards the last value by their
/// correlation. Residual: the distance from it in standard deviations of the remaining variation. Limit, in values:
/// `threshold` deviations above the expected value, scaled by the tail of the residuals, at least `floor` times the
/// mean. Two values in a row only need to exceed a lower limit, learnt in the same way.
#[derive(Clone, Debug, PartialEq, SmartDefault, Serialize, Deserialize)]
pub(crate) struct Spike {
    /// Each capped at three deviations above the expected value, so that a spike does not widen the band for the next
    /// one.
    #[serde(with = "number::list")]
    roots: VecDeque<f64>,
    #[default(Tail::new(SINGLE))]
    single: Tail,
    #[default(Tail::new(PAIR))]
    pair: Tail,
    /// The last residual.
    #[serde(with = "number")]
    last: f64,
    /// The last value.
    #[serde(with = "number", default)]
    last_value: f64,
    /// The number of remaining steps during which no tail is learnt.
    disorder: u32,
}

/// The prediction for the next root.
#[derive(Clone, Copy, Debug)]
struct Outlook {
    mean: f64,
    expected: f64,
    deviation: f64,
}

impl Outlook {
    fn residual(&self, root: f64) -> f64 {
        let distance = root - self.expected;
        if self.deviation > 0.0 {
            distance / self.deviation
        } else if distance > 0.0 {
            f64::INFINITY
        } else {
            0.0
        }
    }

    /// The value that many deviations above the expected one.
    fn at(&self, deviations: f64) -> f64 {
        power(self.expected + deviations * self.deviation)
    }

    /// The smallest value that is a spike however little the window varies, `times` the floor.
    fn floor(&self, args: &RuleArgs, times: f64) -> f64 {
        let level = power(self.mean);
        let floor = level + (times * args.floor.unwrap_or(1.0) - 1.0) * level.abs();
        // The root of a level and back has a rounding error, which must not be a spike.
        floor + 1e-12 * floor.abs()
    }
}

impl Spike {
    /// Adds a value and checks whether it is above the limit. Values that are not finite are ignored.
    pub(crate) fn observe(&mut self, args: &RuleArgs, value: f64) -> Option<Expectation> {
        if !value.is_finite() {
            return None;
        }
        let root = root(value);
        let outlook = if self.roots.len() < args.min_samples { None } else { self.outlook() };
        let (kept, found) = if let Some(outlook) = outlook {
            self.hold_against(args, &outlook, root, value)
        } else {
            let found = beginning::norm(self.roots.iter().map(|&root| power(root)), value);
            (found.and_then(|expected| expected.upper).map_or(root, |upper| root.min(self::root(upper))), found)
        };
        self.last_value = value;
        while self.roots.len() >= args.window.max(1) {
            self.roots.pop_front();
        }
        self.roots.push_back(kept);
        found
    }

    /// The capped value for the window, and the expectation if the value is above the limit.
    fn hold_against(
        &mut self,
        args: &RuleArgs,
        outlook: &Outlook,
        root: f64,
        value: f64,
    ) -> (f64, Option<Expectation>) {
        let residual = outlook.residual(root);
        let upper = self.limit(args, outlook, residual).filter(|&upper| value > upper);
        let found =
            upper.map(|upper| Expectation { typical: Some(power(outlook.mean)), lower: None, upper: Some(upper) });
        let widest = outlook.expected + WINSOR * outlook.deviation;
        let kept = root.min(widest.max(self::root(outlook.floor(args, 1.0))));
        self.learn(args, outlook, residual, found.is_some());
        (kept, found)
    }

    /// The limit for a value with this residual; `None` if no limit is that low.
    fn limit(&self, args: &RuleArgs, outlook: &Outlook, residual: f64) -> Option<f64> {
        let threshold = args.threshold.unwrap_or_default();
        let stretched =
            |tail: &Tail, marks: Marks, share: f64| threshold * (tail.reach(marks) / USUAL_THRESHOLD).max(share);
        // Most residuals are small: the tails are needed for the others only.
        if residual <= PAIR_SHARE * threshold {
            return None;
        }
        let mut upper = outlook.at(stretched(&self.single, SINGLE, 1.0));
        let level = power(outlook.mean);
        if level > 0.0 && self.is_full(args) {
            upper = upper.min((CEILING * level).max(outlook.at(CEILING_SHARE * threshold)));
        }
        upper = upper.max(outlook.floor(args, ALONE));
        let floor = outlook.floor(args, SECOND);
        if self.last_value > floor && self.last > PAIR_SHARE * threshold {
            let pair = stretched(&self.pair, PAIR, PAIR_SHARE);
            // Which of the two is larger does not matter.
            let least = if self.last_value > outlook.floor(args, OF_TWO) { floor } else { outlook.floor(args, OF_TWO) };
            upper = if self.last > pair { upper.min(outlook.at(pair).max(least)) } else { upper };
        }
        Some(upper.max(floor))
    }

    /// Learns the tails once the window is full; before that, only the level is unusual.
    fn learn(&mut self, args: &RuleArgs, outlook: &Outlook, residual: f64, is_spike: bool) {
        let pair = residual.min(self.last);
        self.last = residual;
        if is_spike {
            self.disorder = DISORDER_STEPS;
        } else if self.disorder > 0 {
            self.disorder -= 1;
        } else if self.is_full(args) && outlook.deviation > 0.0 {
            self.single.learn(SINGLE, residual);
            self.pair.learn(PAIR, pair);
        }
    }

    fn is_full(&self, args: &RuleArgs) -> bool {
        self.roots.len() >= args.window
    }

    /// The prediction; `None` without values.
    fn outlook(&self) -> Option<Outlook> {
        let last = *self.roots.back()?;
        let count = self.roots.len() as f64;
        let mean = self.roots.iter().sum::<f64>() / count;
        let (mut squares, mut products, mut before) = (0.0, 0.0, 0.0);
        for root in &self.roots {
            let distance = root - mean;
            squares += distance * distance;
            products += distance * before;
            before = distance;
        }
        let correlation = if squares > 0.0 { (products / squares).clamp(0.0, MAX_CORRELATION) } else { 0.0 };
        let expected = mean + correlation * (last - mean);
        let deviation = (squares / count * (1.0 - correlation * correlation)).sqrt();
        Some(Outlook { mean, expected, deviation })
    }

    /// The distance of a value from the window's mean in standard deviations; `None` without values or variation.
    pub(crate) fn zscore(&self, value: f64) -> Option<f64> {
        if self.roots.is_empty() {
            return None;
        }
        let count = self.roots.len() as f64;
        let values = || self.roots.iter().map(|&root| power(root));
        let mean = values().sum::<f64>() / count;
        let deviation = (values().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        (deviation > 0.0).then(|| (value - mean) / deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::calm;
    use super::*;
    use trainmon_core::AlertRule;

    fn args() -> RuleArgs {
        RuleArgs { floor: Some(1.5), ..RuleArgs::of_rule(AlertRule::Spike) }
    }

    fn after(values: impl IntoIterator<Item = f64>) -> Spike {
        let mut spike = Spike::default();
        for value in values {
            spike.observe(&args(), value);
        }
        spike
    }

    #[test]
    fn before_its_samples_only_a_leap_is_told_and_from_then_on_all_that_is_outside_of_the_scatter() {
        assert_eq!(after((0..63).map(calm)).observe(&args(), 5.0), None);
        assert!(after((0..63).map(calm)).observe(&args(), 100.0).is_some());
        let found = after((0..64).map(calm)).observe(&args(), 100.0).unwrap();
        assert!((found.typical.unwrap() - 1.0).abs() < 0.05 && found.upper.unwrap() < 2.3, "{found:?}");
    }

    #[test]
    fn a_calm_window_needs_twice_its_mean_once_or_half_of_it_more_twice() {
        let calm = || after(std::iter::repeat_n(2.0, 100));
        assert_eq!(calm().observe(&args(), 4.3), None);
        assert!(calm().observe(&args(), 4.36).is_some());
        let second = |first: f64, second: f64| {
            let mut spike = calm();
            spike.observe(&args(), first);
            spike.observe(&args(), second).is_some()
        };
        // The larger of the two is above 1.725 times the mean, the smaller above 1.2 times.
        assert!(second(3.6, 2.6) && second(2.6, 3.6));
        assert!(!second(3.2, 3.2) && !second(2.2, 3.6) && !second(3.6, 2.2));
    }

    #[test]
    fn a_spike_does_not_hide_the_next_one() {
        let mut spike = after((0..128).map(calm));
        for step in 128..400 {
            let is_spike = step % 10 == 0;
            let value = if is_spike { 50.0 } else { calm(step) };
            assert_eq!(spike.observe(&args(), value).is_some(), is_spike, "step {step}");
        }
    }

    #[test]
    fn a_new_level_is_a_spike_until_the_window_has_learnt_it() {
        let mut spike = after((0..128).map(calm));
        let found = (128..500).filter(|&step| spike.observe(&args(), 10.0 * calm(step)).is_some()).count();
        assert!((1..200).contains(&found), "{found}");
    }

    #[test]
    fn values_below_zero_have_a_band_too() {
        let mut spike = after((0..128).map(|step| -5.0 + 0.1 * calm(step)));
        assert_eq!(spike.observe(&args(), -4.0), None);
        assert!(spike.observe(&args(), 8.0).is_some());
    }

    #[test]
    fn a_shorter_window_of_a_new_config_forgets_the_oldest() {
        let mut spike = after((0..128).map(calm));
        let short = RuleArgs { window: 64, ..args() };
        spike.observe(&short, 1.0);
        assert_eq!(spike.roots.len(), 64);
    }
}
