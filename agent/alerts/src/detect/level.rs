//! Rules on a single value, or on a number of similar values in a row.

use serde::{Deserialize, Serialize};
use trainmon_core::Expectation;
use trainmon_core::config::RuleArgs;

/// `NonFinite`: NaN or infinite. A norm is not finite exactly if an element is not, or its square overflows float64.
pub(crate) fn non_finite(value: f64) -> Option<Expectation> {
    (!value.is_finite()).then_some(Expectation::default())
}

/// `NormMismatch`: a ratio that differs from 1 by more than the threshold allows. NaN always differs.
pub(crate) fn far_from_one(args: &RuleArgs, ratio: f64) -> Option<Expectation> {
    let tolerance = args.threshold.unwrap_or_default();
    let agrees = (ratio - 1.0).abs() <= tolerance;
    (!agrees).then_some(Expectation { typical: Some(1.0), lower: Some(1.0 - tolerance), upper: Some(1.0 + tolerance) })
}

/// The number of steps in a row that meet a rule's condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InARow {
    steps: u64,
}

impl InARow {
    /// `Dead`: exactly zero for the configured number of steps.
    pub(crate) fn dead(&mut self, args: &RuleArgs, value: f64) -> Option<Expectation> {
        self.count(args, value == 0.0).then(Expectation::default)
    }

    /// `UpdateRatio`: above the threshold for the configured number of steps.
    pub(crate) fn above(&mut self, args: &RuleArgs, value: f64) -> Option<Expectation> {
        let upper = args.threshold.unwrap_or_default();
        self.count(args, value > upper).then_some(Expectation { typical: None, lower: None, upper: Some(upper) })
    }

    fn count(&mut self, args: &RuleArgs, is_so: bool) -> bool {
        self.steps = if is_so { self.steps.saturating_add(1) } else { 0 };
        self.steps >= args.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainmon_core::AlertRule;

    #[test]
    fn dead_needs_its_steps_in_a_row_and_ends_with_the_first_sign_of_life() {
        let args = RuleArgs { steps: 3, ..RuleArgs::of_rule(AlertRule::Dead) };
        let mut row = InARow::default();
        let found: Vec<bool> =
            [0.0, 0.0, 1e-300, -0.0, 0.0, 0.0, 0.0, 1.0].map(|value| row.dead(&args, value).is_some()).into();
        assert_eq!(found, [false, false, false, false, false, true, true, false]);
    }

    #[test]
    fn a_ratio_above_its_range_needs_its_steps_in_a_row() {
        let args = RuleArgs { steps: 2, threshold: Some(0.01), ..RuleArgs::of_rule(AlertRule::UpdateRatio) };
        let mut row = InARow::default();
        let found: Vec<bool> = [0.02, 0.01, 0.02, f64::INFINITY, 0.02, f64::NAN, 0.02]
            .map(|value| row.above(&args, value).is_some())
            .into();
        assert_eq!(found, [false, false, false, true, true, false, false]);
    }

    #[test]
    fn norms_part_beyond_the_tolerance() {
        let args = RuleArgs::of_rule(AlertRule::NormMismatch);
        for (ratio, parts) in [(1.0, false), (1.009, false), (1.02, true), (0.5, true), (f64::NAN, true), (0.0, true)] {
            assert_eq!(far_from_one(&args, ratio).is_some(), parts, "{ratio}");
        }
    }
}
