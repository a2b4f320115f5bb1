//! `Collapse`: a loss that is the same number in every step, with a gradient norm that does not change either.
//!
//! A loss of exactly 0 (a mask that hides every token, a sum in the wrong place) or of ln 2 (a model with constant
//! output) looks normal to every other rule. In a training that learns, neither loss nor norm repeats.

use serde::{Deserialize, Serialize};
use trainmon_core::config::RuleArgs;
use trainmon_core::{Expectation, number};

/// The relative change below which a norm counts as constant: rounding in sums of a different order.
const NORM_TOLERANCE: f64 = 1e-6;

/// The state of the run of equal steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Collapse {
    #[serde(with = "number::optional")]
    loss: Option<f64>,
    #[serde(with = "number::optional")]
    norm: Option<f64>,
    /// The number of steps in a row, including the first.
    steps: u64,
}

impl Collapse {
    /// Adds a step's loss and gradient norm. Without a norm it finds nothing, because a script may log a constant
    /// instead of a loss.
    pub(crate) fn observe(&mut self, args: &RuleArgs, loss: f64, norm: Option<f64>) -> Option<Expectation> {
        // A partially measured step has no norm; it counts only if its loss differs.
        if norm.is_none() && self.loss == Some(loss) {
            return None;
        }
        let stands_still = |before: f64, now: f64| (now - before).abs() <= NORM_TOLERANCE * before.abs();
        let is_same =
            self.loss == Some(loss) && self.norm.zip(norm).is_some_and(|(before, now)| stands_still(before, now));
        if is_same {
            self.steps = self.steps.saturating_add(1);
        } else {
            (self.loss, self.norm, self.steps) = (Some(loss), norm, 1);
        }
        (self.steps >= args.steps).then(Expectation::default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainmon_core::AlertRule;

    fn found(steps: impl IntoIterator<Item = (f64, Option<f64>)>) -> Vec<usize> {
        let args = RuleArgs { steps: 5, ..RuleArgs::of_rule(AlertRule::Collapse) };
        let mut collapse = Collapse::default();
        let hits =
            steps.into_iter().enumerate().filter(|&(_, (loss, norm))| collapse.observe(&args, loss, norm).is_some());
        hits.map(|(step, _)| step).collect()
    }

    #[test]
    fn a_loss_and_a_norm_that_stand_still_are_told() {
        let zero =
            (0..20).map(|step| if step < 10 { (1.0 / f64::from(step + 1), Some(2.0)) } else { (0.0, Some(1.5)) });
        assert_eq!(found(zero), (14..20).collect::<Vec<_>>());
        assert_eq!(found((0..8).map(|_| (0.693, Some(0.0)))), [4, 5, 6, 7]);
    }

    #[test]
    fn one_of_the_two_that_moves_is_enough() {
        assert!(found((0..50).map(|step| (1.0, Some(1.0 + 1e-4 * f64::from(step))))).is_empty());
        assert!(found((0..50).map(|step| (1.0 + 1e-4 * f64::from(step), Some(1.0)))).is_empty());
        assert!(found((0..50).map(|_| (1.0, None))).is_empty());
        // Every second step is measured.
        let thinned = (0..20).map(|step| (0.0, (step % 2 == 0).then_some(1.5)));
        assert_eq!(found(thinned).first(), Some(&8));
        assert!(found((0..50).map(|_| (f64::NAN, Some(f64::NAN)))).is_empty());
    }
}
