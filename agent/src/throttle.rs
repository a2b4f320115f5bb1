//! Keeps the monitor's own time within its budget: derives the sampling stride from the cost of the last steps.

use std::time::Duration;

/// The number of measured steps per judgement; a full turn of the rotation if that is longer.
const JUDGED_STEPS: u32 = 8;
/// The number of first steps that are not judged, because buffers grow and caches are cold.
const WARM_UP_STEPS: u32 = 2;
/// The largest stride: a layer is measured at least every 256 measured steps, whatever the cost.
pub(crate) const MAX_STRIDE: u32 = 256;
/// The stride is halved only if twice the cost stays below this share of the budget. Otherwise it would grow again at once.
const ROOM: f64 = 0.9;
/// The number of consecutive judgements that must agree before the stride is halved.
const CALM_JUDGEMENTS: u32 = 2;

/// The effect of a step on the stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Unchanged.
    Keep,
    /// The new, larger stride: one layer in this many is measured.
    Less(u32),
    /// The new, smaller stride; 1 measures everything.
    More(u32),
    /// The budget is exceeded at the largest stride. Returned once, until more is measured again.
    Exhausted,
}

/// Judges the cost of steps. Reads no clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttle {
    budget: f64,
    stride: u32,
    warm_up: u32,
    measured: u32,
    spent: Duration,
    passed: Duration,
    calm: u32,
    is_exhausted: bool,
}

impl Throttle {
    /// `budget`: the share of a step's time that measuring may take, above 0.
    pub(crate) fn new(budget: f64) -> Self {
        Self { budget, stride: 1, warm_up: WARM_UP_STEPS, ..Self::default() }
    }

    /// The share of a step's time that measuring may take.
    pub(crate) fn budget(&self) -> f64 {
        self.budget
    }

    /// Adds a step: its cost in the training thread, its duration since the end of the previous step, and whether anything
    /// was measured.
    pub(crate) fn add_step(&mut self, spent: Duration, duration: Option<Duration>, measured: bool) -> Verdict {
        let Some(duration) = duration else { return Verdict::Keep };
        if self.warm_up > 0 {
            self.warm_up -= u32::from(measured);
            return Verdict::Keep;
        }
        self.spent += spent;
        self.passed += duration;
        self.measured += u32::from(measured);
        if self.measured < JUDGED_STEPS.max(self.stride) || self.passed.is_zero() {
            return Verdict::Keep;
        }
        let share = self.spent.as_secs_f64() / self.passed.as_secs_f64();
        (self.spent, self.passed, self.measured) = (Duration::ZERO, Duration::ZERO, 0);
        self.judge(share)
    }

    fn judge(&mut self, share: f64) -> Verdict {
        if share > self.budget {
            self.calm = 0;
            if self.stride == MAX_STRIDE {
                return if std::mem::replace(&mut self.is_exhausted, true) {
                    Verdict::Keep
                } else {
                    Verdict::Exhausted
                };
            }
            let factor = (share / self.budget).min(f64::from(MAX_STRIDE)).ceil() as u32;
            self.stride = (self.stride * factor.max(2)).next_power_of_two().min(MAX_STRIDE);
            return Verdict::Less(self.stride);
        }
        if self.stride > 1 && 2.0 * share <= ROOM * self.budget {
            self.calm += 1;
            if self.calm >= CALM_JUDGEMENTS {
                self.calm = 0;
                self.is_exhausted = false;
                self.stride /= 2;
                return Verdict::More(self.stride);
            }
        } else {
            self.calm = 0;
        }
        Verdict::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    /// Steps of 100 ms whose measuring costs `fixed`, and `whole` over the stride. The strides after each of them.
    fn strides(throttle: &mut Throttle, steps: u32, fixed: Duration, whole: Duration) -> Vec<u32> {
        (0..steps)
            .map(|_| {
                let spent = fixed + whole / throttle.stride;
                throttle.add_step(spent, Some(STEP + spent), true);
                throttle.stride
            })
            .collect()
    }

    #[test]
    fn within_the_budget_everything_is_measured() {
        let mut throttle = Throttle::new(0.01);
        assert_eq!(strides(&mut throttle, 100, Duration::ZERO, Duration::from_micros(900)), [1; 100]);
    }

    #[test]
    fn above_the_budget_it_thins_out_at_once_as_far_as_needed_and_stays() {
        let mut throttle = Throttle::new(0.01);
        let strides = strides(&mut throttle, 200, Duration::ZERO, Duration::from_millis(5));
        assert_eq!(strides[..WARM_UP_STEPS as usize + 7], [1; 9]);
        assert_eq!(strides[9..], [8; 191], "5 ms of 105 is five times the budget: one in eight");
    }

    #[test]
    fn it_measures_more_again_when_that_fits_and_does_not_swing() {
        let mut throttle = Throttle::new(0.01);
        strides(&mut throttle, 50, Duration::ZERO, Duration::from_millis(5));
        let after = strides(&mut throttle, 200, Duration::ZERO, Duration::from_micros(800));
        assert_eq!(after.last(), Some(&1));
        assert!(after.is_sorted_by(|a, b| a >= b), "{after:?}");
        let border = strides(&mut throttle, 400, Duration::ZERO, Duration::from_micros(1_050));
        assert_eq!(border.iter().max(), Some(&2));
        assert!(border[20..].iter().all(|&stride| stride == 2), "half of 1.05 % is not far enough below 1 %");
    }

    #[test]
    fn a_cost_that_thinning_does_not_lower_is_told_once() {
        let mut throttle = Throttle::new(0.01);
        let mut told = 0;
        for _ in 0..5_000 {
            told += u32::from(throttle.add_step(Duration::from_millis(20), Some(STEP), true) == Verdict::Exhausted);
        }
        assert_eq!((told, throttle.stride), (1, MAX_STRIDE));
    }

    #[test]
    fn steps_between_measured_ones_count_as_time() {
        let mut throttle = Throttle::new(0.01);
        for step in 0..200 {
            let measured = step % 10 == 0;
            let spent = if measured { Duration::from_millis(5) } else { Duration::ZERO };
            throttle.add_step(spent, Some(STEP), measured);
        }
        assert_eq!(throttle.stride, 1, "5 ms in every tenth step of 100 ms is half a percent");
    }

    #[test]
    fn steps_without_a_duration_are_not_judged() {
        let mut throttle = Throttle::new(0.01);
        for _ in 0..50 {
            assert_eq!(throttle.add_step(Duration::from_secs(1), None, true), Verdict::Keep);
        }
    }
}
