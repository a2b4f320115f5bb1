//! The start of a run, before a rule has seen enough values to know their variation. Only extreme values are reported.

use std::collections::VecDeque;

use trainmon_core::{Expectation, median_of};

/// The number of values before the first check.
const MIN_VALUES: usize = 6;
/// The limit for norms, as a multiple of the median so far. In a linear warm-up, an update grows to twice its median;
/// in a quadratic one, to four times.
const OF_MEDIAN: f64 = 10.0;
/// The limit for losses, which start high and fall, as a multiple of the largest so far.
const OF_LARGEST_LOSS: f64 = 3.0;

/// Losses are checked only while all are within this factor.
const MAX_SPREAD: f64 = 10.0;

/// The expectation for a norm that is far above the values before it.
pub(super) fn norm(before: impl Iterator<Item = f64>, value: f64) -> Option<Expectation> {
    let mut room: Vec<f64> = before.collect();
    let is_known = room.len() >= MIN_VALUES;
    let median = median_of(&mut room);
    let upper = OF_MEDIAN * median;
    (is_known && median > 0.0 && value > upper).then_some(Expectation {
        typical: Some(median),
        lower: None,
        upper: Some(upper),
    })
}

/// The expectation for a loss that is far above the values before it.
pub(super) fn loss(before: &VecDeque<f64>, value: f64) -> Option<Expectation> {
    if before.len() < MIN_VALUES {
        return None;
    }
    let largest = before.iter().copied().fold(f64::MIN, f64::max);
    // Losses around zero (policies, adversaries) and those that are still falling have no range yet.
    if before.iter().any(|&one| one <= 0.0 || largest > MAX_SPREAD * one) {
        return None;
    }
    let upper = OF_LARGEST_LOSS * largest;
    let typical = Some(median_of(&mut before.iter().copied().collect::<Vec<f64>>()));
    (value > upper).then_some(Expectation { typical, lower: None, upper: Some(upper) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(values: impl IntoIterator<Item = f64>, look: impl Fn(&VecDeque<f64>, f64) -> bool) -> Vec<usize> {
        let (mut before, mut found) = (VecDeque::new(), Vec::new());
        for (step, value) in values.into_iter().enumerate() {
            if look(&before, value) {
                found.push(step);
            } else {
                before.push_back(value);
            }
        }
        found
    }

    fn norms(values: impl IntoIterator<Item = f64>) -> Vec<usize> {
        hits(values, |before, value| norm(before.iter().copied(), value).is_some())
    }

    #[test]
    fn a_leap_and_a_quick_rise_are_told() {
        assert_eq!(norms([1.0, 1.2, 0.9, 1.1, 1.0, 1.1, 30.0, 1.0, 25.0, 1.1]), [6, 8]);
        // A thousandfold in twelve steps.
        assert_eq!(norms((0..12).map(|step| 1.78_f64.powi(step)))[0], 7);
    }

    #[test]
    fn a_warm_up_a_fall_and_zeros_are_calm() {
        assert!(norms((0..64).map(f64::from)).is_empty());
        assert!(norms((0..64).map(|step| f64::from(step * step))).is_empty());
        assert!(norms((0..64).map(|step| 500.0 / f64::from(step + 1))).is_empty());
        assert!(norms(std::iter::repeat_n(0.0, 64)).is_empty());
        // The first values are whatever they are.
        assert!(norms([1e-6, 5.0, 40.0, 300.0]).is_empty());
    }

    #[test]
    fn a_loss_that_starts_high_may_fall_and_not_rise_threefold() {
        let losses = (0..40).map(|step| if step == 20 { 50.0 * 3.0 } else { 6.0 - 0.1 * f64::from(step) });
        assert_eq!(hits(losses, |before, value| loss(before, value).is_some()), [20]);
    }
}
