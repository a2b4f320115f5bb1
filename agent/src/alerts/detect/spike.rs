//! `Spike`: a rise far outside the recent scatter.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use trainmon_core::config::RuleArgs;
use trainmon_core::{Expectation, number};

/// The last values, each no larger than what was then the limit: a spike must not widen the band for the next one.
///
/// Limit: mean + max(k standard deviations, (floor - 1) |mean|), of the population in the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spike {
    #[serde(with = "number::list")]
    window: VecDeque<f64>,
}

impl Spike {
    /// Whether the value is above the limit. One that is not finite is neither a spike nor part of the window.
    pub(crate) fn observe(&mut self, args: &RuleArgs, value: f64) -> Option<Expectation> {
        if !value.is_finite() {
            return None;
        }
        let limit = self.limit(args);
        let kept = limit.map_or(value, |(_, upper)| value.min(upper));
        while self.window.len() >= args.window.max(1) {
            self.window.pop_front();
        }
        self.window.push_back(kept);
        let (mean, upper) = limit.filter(|&(_, upper)| value > upper)?;
        Some(Expectation { typical: Some(mean), lower: None, upper: Some(upper) })
    }

    /// Mean and limit; `None` while there are too few values.
    fn limit(&self, args: &RuleArgs) -> Option<(f64, f64)> {
        if self.window.len() < args.min_samples {
            return None;
        }
        let (mean, deviation) = self.scatter()?;
        let by_scatter = args.threshold.unwrap_or_default() * deviation;
        let by_floor = (args.floor.unwrap_or(1.0) - 1.0) * mean.abs();
        Some((mean, mean + by_scatter.max(by_floor)))
    }

    /// The distance of a value from the window's mean in standard deviations; `None` without values or scatter.
    pub(crate) fn zscore(&self, value: f64) -> Option<f64> {
        let (mean, deviation) = self.scatter()?;
        (deviation > 0.0).then(|| (value - mean) / deviation)
    }

    fn scatter(&self) -> Option<(f64, f64)> {
        if self.window.is_empty() {
            return None;
        }
        let count = self.window.len() as f64;
        let mean = self.window.iter().sum::<f64>() / count;
        let variance = self.window.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Some((mean, variance.sqrt()))
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
    fn it_says_nothing_before_its_samples_and_speaks_from_then_on() {
        assert_eq!(after((0..63).map(calm)).observe(&args(), 100.0), None);
        let found = after((0..64).map(calm)).observe(&args(), 100.0).unwrap();
        assert!((found.typical.unwrap() - 1.0).abs() < 0.05 && found.upper.unwrap() < 1.6, "{found:?}");
    }

    #[test]
    fn a_calm_window_needs_half_of_its_mean_more() {
        let mut spike = after(std::iter::repeat_n(2.0, 100));
        assert_eq!(spike.observe(&args(), 3.0), None);
        assert!(after(std::iter::repeat_n(2.0, 100)).observe(&args(), 3.01).is_some());
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
        assert!(spike.observe(&args(), 3.0).is_some());
    }

    #[test]
    fn a_shorter_window_of_a_new_config_forgets_the_oldest() {
        let mut spike = after((0..128).map(calm));
        let short = RuleArgs { window: 64, ..args() };
        spike.observe(&short, 1.0);
        assert_eq!(spike.window.len(), 64);
    }
}
