//! The usual level of a tensor's norm, and the distance of the newest norm from it.

/// The weight of the newest value: older values lose their influence within about 50 steps.
const WEIGHT: f64 = 0.02;
/// The number of values required for a scatter.
const MIN_VALUES: u32 = 8;
/// The smallest standard deviation, in natural logarithms: norms that scatter by less than 4 % count as constant. With
/// the threshold of [`far_deviations`], which is at least 3.2, no change of less than 13 % is far; with that of 2,000
/// tensors over 1,000 steps, none of less than 28 %.
const MIN_DEVIATION: f64 = 0.04;
/// The largest influence of a value on the level and its scatter, in standard deviations. One spike must not hide the
/// next.
const MOST_PULL: f64 = 4.0;
/// The probability that noise puts even one tensor, in one step of the run, beyond [`far_deviations`].
const FALSE_ALARM: f64 = 0.01;
/// A lower limit for logarithms, because a norm of zero has none.
const SMALLEST: f64 = 1e-30;

/// The number of standard deviations from which on a value is unlikely to be chance, among `values` examined values:
/// tensors times steps.
///
/// Two tails of a normal distribution, bounded from above (`P(|z| > b) <= 2 exp(-b^2 / 2)`), over all values together:
/// 4.8 for ten tensors and 60 steps, 6.3 for 2,000 tensors and 1,000 steps.
pub(crate) fn far_deviations(values: f64) -> f64 {
    (2.0 * (2.0 * values.max(1.0) / FALSE_ALARM).ln()).sqrt()
}

/// Exponentially weighted mean and variance of a norm's logarithm. 48 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    mean: f64,
    variance: f64,
    /// The number of finite values so far.
    values: u32,
    seen: bool,
    /// The mean before the newest value; NaN before there is a scatter.
    mean_before: f32,
    newest: f32,
    /// The distance of the newest value from the values before it.
    deviations: f32,
    /// The step of the newest value.
    step: u64,
}

impl Level {
    /// Adds the next value. A value of an earlier step than the newest is ignored.
    pub(crate) fn add(&mut self, step: u64, value: f32) {
        if self.seen && step < self.step {
            return;
        }
        (self.seen, self.step, self.newest, self.deviations) = (true, step, value, 0.0);
        self.mean_before = if self.values < MIN_VALUES { f32::NAN } else { self.mean as f32 };
        if !value.is_finite() {
            return;
        }
        let logarithm = f64::from(value).max(SMALLEST).ln();
        let mut difference = logarithm - self.mean;
        if self.values >= MIN_VALUES {
            let deviation = self.variance.sqrt().max(MIN_DEVIATION);
            self.deviations = (difference / deviation) as f32;
            difference = difference.clamp(-MOST_PULL * deviation, MOST_PULL * deviation);
        }
        self.values = self.values.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.values));
        self.mean += weight * difference;
        self.variance = (1.0 - weight) * (self.variance + weight * difference * difference);
    }

    /// Handles a resume at `step`: measuring continues from there, so the newest value counts as no later than it.
    pub(crate) fn resume(&mut self, step: u64) {
        if self.step >= step {
            self.step = step.saturating_sub(1);
        }
    }

    /// The newest step and value; `None` before the first.
    pub(crate) fn newest(&self) -> Option<(u64, f32)> {
        self.seen.then_some((self.step, self.newest))
    }

    /// The newest value's distance from the level in standard deviations of the logarithm; 0 before there is a scatter.
    pub(crate) fn deviations(&self) -> f32 {
        self.deviations
    }

    /// The usual value before the newest one; `None` before there is a scatter.
    pub(crate) fn usual(&self) -> Option<f64> {
        (self.seen && !self.mean_before.is_nan()).then(|| f64::from(self.mean_before).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_stands_out_and_a_steady_value_does_not() {
        let mut level = Level::default();
        assert_eq!((level.newest(), level.usual()), (None, None));
        for step in 0..100 {
            level.add(step, if step % 2 == 0 { 1.0 } else { 1.1 });
        }
        assert!(level.deviations().abs() < 2.0, "{level:?}");
        assert!((level.usual().unwrap() - 1.05).abs() < 0.01, "{level:?}");
        level.add(100, 50.0);
        assert!(level.deviations() > 20.0, "{level:?}");
        level.add(101, 1.0);
        assert!(level.deviations() < 0.0, "{level:?}");
    }

    #[test]
    fn a_value_that_is_not_finite_leaves_the_level_as_it_is() {
        let mut level = Level::default();
        (0..20).for_each(|step| level.add(step, 2.0));
        level.add(20, f32::NAN);
        assert!(level.newest().unwrap().1.is_nan());
        assert!((level.usual().unwrap() - 2.0).abs() < 1e-6);
        level.add(3, 9.0);
        assert_eq!(level.newest().unwrap().0, 20, "an earlier step does not count");
        let mut begins_badly = Level::default();
        begins_badly.add(0, f32::NAN);
        (1..20).for_each(|step| begins_badly.add(step, 2.0));
        assert!((begins_badly.usual().unwrap() - 2.0).abs() < 1e-6);
    }

    #[test]
    fn a_spike_does_not_hide_the_next_one_and_a_new_level_becomes_the_usual_one() {
        let mut level = Level::default();
        for step in 0..100 {
            level.add(step, if step % 2 == 0 { 1.0 } else { 1.1 });
        }
        level.add(100, 1000.0);
        let first = level.deviations();
        level.add(101, 1.0);
        level.add(102, 1000.0);
        assert!(level.deviations() > 0.7 * first, "{} after {first}", level.deviations());
        (103..400).for_each(|step| level.add(step, 1000.0));
        assert!(level.deviations().abs() < 1.0, "{level:?}");
    }

    /// Normal to a good approximation: the sum of twelve numbers that are spread evenly.
    fn scatter(state: &mut u64) -> f64 {
        let mut sum = 0.0;
        for _ in 0..12 {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sum += (*state >> 11) as f64 / (1_u64 << 53) as f64;
        }
        sum - 6.0
    }

    #[test]
    fn of_many_tensors_noise_is_not_far_and_a_change_is() {
        let (tensors, steps, mut state) = (2_000, 300, 7);
        let far = far_deviations(f64::from(tensors * steps));
        let (mut noise, mut largest, mut found) = (0, 0.0_f64, 0);
        for tensor in 0..tensors {
            let mut level = Level::default();
            for step in 0..steps {
                level.add(u64::from(step as u32), (0.2 * scatter(&mut state)).exp() as f32);
                let deviations = f64::from(level.deviations()).abs();
                // Of the first few values the scatter is not known well.
                largest = largest.max(if step >= 50 { deviations } else { 0.0 });
                noise += usize::from(step >= 50 && deviations > far);
            }
            if tensor % 100 == 0 {
                level.add(1_000, 8.0);
                found += usize::from(f64::from(level.deviations()) > far);
            }
        }
        assert_eq!((noise, found), (0, 20), "largest {largest}, bound {far}");
        assert!(largest > 4.0, "a bound for one tensor would name noise: {largest}");
        assert!((far_deviations(600.0) - 4.84).abs() < 0.01 && (far_deviations(2e6) - 6.29).abs() < 0.01);
    }

    #[test]
    fn a_norm_that_falls_to_zero_stands_out() {
        let mut level = Level::default();
        (0..20).for_each(|step| level.add(step, 2.0));
        level.add(20, 0.0);
        assert!(level.deviations() < -100.0, "{level:?}");
    }
}
