//! The tail of a series' residuals, estimated from how often they exceed two marks.

use serde::{Deserialize, Serialize};
use trainmon_core::number;

use super::logarithm::{exponential, logarithm};

/// The number of steps that the counts cover. Ten thousand steps have one residual of one in ten thousand.
const HORIZON: f64 = 8_192.0;
/// The weight of the initial assumption, in steps.
const ASSUMED: f64 = 1_000.0;
/// A tail bends away from a stretched exponential the further out it is and the heavier it is: by this much of the
/// square. Chosen on generated series with normal, log-normal and Student's t residuals (three degrees of freedom).
const BEND: f64 = 0.8;

/// The lowest exponent. In a series with a heavier tail, no spike could be detected.
const MIN_EXPONENT: f64 = 0.2;

/// The marks for one type of residual, and the assumed shares beyond them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// The two marks, in deviations.
    at: [f64; 2],
    assumed: [f64; 2],
    /// The share allowed beyond the reach: one in this many.
    rarity: f64,
}

/// Single residuals. Normal ones exceed the marks in 2.3 % and 0.13 % of steps, Student's with three degrees of freedom
/// in about 4 % and 1.5 %.
pub(crate) const SINGLE: Marks = Marks { at: [2.0, 3.0], assumed: [0.026, 0.003], rarity: 10_000.0 };
/// The smaller one of two residuals in a row.
pub(crate) const PAIR: Marks = Marks { at: [0.7, 1.6], assumed: [0.06, 0.003], rarity: 16_000.0 };

/// Counts with older ones fading. The caller excludes spikes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tail {
    #[serde(with = "number")]
    seen: f64,
    #[serde(with = "number")]
    beyond_first: f64,
    #[serde(with = "number")]
    beyond_second: f64,
}

impl Tail {
    /// The initial counts.
    pub(crate) fn new(marks: Marks) -> Self {
        let [first, second] = marks.assumed;
        Self { seen: ASSUMED, beyond_first: ASSUMED * first, beyond_second: ASSUMED * second }
    }

    /// Adds a residual, in deviations.
    pub(crate) fn learn(&mut self, marks: Marks, residual: f64) {
        if self.seen > HORIZON {
            let keep = 1.0 - 1.0 / HORIZON;
            self.seen *= keep;
            self.beyond_first *= keep;
            self.beyond_second *= keep;
        }
        self.seen += 1.0;
        self.beyond_first += f64::from(u8::from(residual > marks.at[0]));
        self.beyond_second += f64::from(u8::from(residual > marks.at[1]));
    }

    /// The residual that at most the share of `rarity` should exceed, in deviations; at least the second mark.
    ///
    /// A stretched exponential, exp(-(x/s)^k), passes through both shares and is extrapolated to the rare one. It fits
    /// normal residuals (k near 2) and falls short for a power-law tail (k below 1), hence the bend.
    pub(crate) fn reach(&self, marks: Marks) -> f64 {
        let depth = |beyond: f64| logarithm(self.seen / beyond);
        let (first, second) = (depth(self.beyond_first), depth(self.beyond_second));
        let exponent = logarithm(second / first) / logarithm(marks.at[1] / marks.at[0]);
        let way = logarithm((logarithm(marks.rarity) / second).max(1.0)) / exponent.max(MIN_EXPONENT);
        marks.at[1] * exponential(way * (1.0 + BEND * way))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reach after 40,000 residuals of which these shares lie beyond the marks.
    fn reach(first: f64, second: f64) -> f64 {
        let mut tail = Tail::new(SINGLE);
        let every = |share: f64, step: u32| (f64::from(step) * share).fract() < share;
        for step in 0..40_000 {
            let residual = if every(second, step) {
                3.5
            } else if every(first - second, step + 7) {
                2.5
            } else {
                0.0
            };
            tail.learn(SINGLE, residual);
        }
        tail.reach(SINGLE)
    }

    #[test]
    fn normal_residuals_reach_some_four_deviations_and_those_of_heavy_tails_more() {
        // One in 10,000 normal numbers is above 3.72; the shares are those of the normal distribution.
        let normal = reach(0.022_75, 0.001_35);
        assert!((3.7..4.2).contains(&normal), "{normal}");
        // Of Student's t with three degrees of freedom, in units of 1.5, 2.9 % and 1.0 % lie beyond the marks and one in
        // 10,000 above 14.8.
        let student = reach(0.028_8, 0.010_2);
        assert!((10.0..30.0).contains(&student), "{student}");
        assert!(reach(0.02, 0.0) <= 3.0, "what never passes the second mark reaches no further");
    }
}
