//! msprobe's two rules, over its running average of magnitudes.

use serde::{Deserialize, Serialize};
use trainmon_core::config::RuleArgs;
use trainmon_core::{Expectation, number};

/// msprobe's weight of the past.
const DECAY: f64 = 0.99;

/// The running average of magnitudes: the first value, then 0.99 of itself plus 0.01 of the next. Values that are not
/// finite are skipped; msprobe's average stays NaN after one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Anomaly {
    #[serde(with = "number::optional")]
    average: Option<f64>,
}

impl Anomaly {
    /// A magnitude that exceeds the average by more than the threshold allows.
    pub(crate) fn turbulence(&mut self, args: &RuleArgs, value: f64) -> Option<Expectation> {
        let average = self.before(value)?;
        let upper = average * (1.0 + args.threshold.unwrap_or_default());
        (value.abs() > upper).then_some(Expectation { typical: Some(average), lower: None, upper: Some(upper) })
    }

    /// NaN, infinity, or a magnitude above the threshold if there is one.
    pub(crate) fn nan_or_large(&mut self, args: &RuleArgs, value: f64) -> Option<Expectation> {
        let average = self.before(value);
        let is_large = args.threshold.is_some_and(|threshold| value.abs() > threshold);
        (is_large || !value.is_finite()).then_some(Expectation { typical: average, lower: None, upper: args.threshold })
    }

    /// The average without this value, which is then added. The first value is compared with itself.
    fn before(&mut self, value: f64) -> Option<f64> {
        let magnitude = value.abs();
        if !magnitude.is_finite() {
            return self.average;
        }
        let before = self.average.unwrap_or(magnitude);
        self.average = Some(DECAY * before + (1.0 - DECAY) * magnitude);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainmon_core::AlertRule;

    fn args(threshold: Option<f64>) -> RuleArgs {
        RuleArgs { threshold, ..RuleArgs::of_rule(AlertRule::AnomalyTurbulence) }
    }

    fn with_average(average: f64) -> Anomaly {
        Anomaly { average: Some(average) }
    }

    #[test]
    fn the_rules_decide_as_the_incumbents_do() {
        let turbulence = |average, value| with_average(average).turbulence(&args(Some(0.2)), value).is_some();
        assert_eq!([turbulence(12.0, 16.0), turbulence(0.0, -1.0), turbulence(0.0, 0.0)], [true, true, false]);
        let nan = |value| with_average(1.0).nan_or_large(&args(Some(1e10)), value).is_some();
        assert_eq!([nan(f64::NAN), nan(1e30), nan(0.5)], [true, true, false]);
    }

    #[test]
    fn the_average_is_that_of_the_incumbent() {
        let mut anomaly = Anomaly::default();
        assert_eq!(anomaly.turbulence(&args(Some(0.0)), 1.0), None);
        let hit = anomaly.turbulence(&args(Some(0.2)), 2.0).unwrap();
        assert_eq!((hit.typical, hit.upper), (Some(1.0), Some(1.2)));
        assert!((anomaly.average.unwrap() - 1.01).abs() < 1e-15);
    }

    #[test]
    fn infinity_is_found_without_a_threshold_and_left_out_of_the_average() {
        let mut anomaly = with_average(3.0);
        assert!(anomaly.nan_or_large(&args(None), f64::INFINITY).is_some());
        assert!(anomaly.nan_or_large(&args(None), f64::NAN).is_some());
        assert_eq!(anomaly, with_average(3.0));
        assert_eq!(Anomaly::default().nan_or_large(&args(None), f64::NAN).unwrap().typical, None);
    }
}
