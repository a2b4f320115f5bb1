//! The usual level of a tensor's norm, and how far the newest one lies from it.

/// The weight of the newest value: the level forgets within some 50 steps.
const WEIGHT: f64 = 0.02;
/// With fewer values there is no scatter to measure by.
const MIN_VALUES: u32 = 8;
/// In natural logarithms: norms that scatter by less than 2 % are as good as constant, and a change of 2 % is no news.
const MIN_DEVIATION: f64 = 0.02;
/// A norm of zero has no logarithm.
const SMALLEST: f64 = 1e-30;

/// Exponentially weighted mean and variance of a norm's logarithm. 48 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    mean: f64,
    variance: f64,
    /// Finite values so far.
    values: u32,
    seen: bool,
    /// The mean before the newest value: NaN before there is a scatter.
    mean_before: f32,
    newest: f32,
    /// Of the newest value, against what was before it.
    deviations: f32,
    /// The step of the newest value.
    step: u64,
}

impl Level {
    /// Takes the next value in. One of an earlier step than the newest is passed over.
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
        let difference = logarithm - self.mean;
        if self.values >= MIN_VALUES {
            self.deviations = (difference / self.variance.sqrt().max(MIN_DEVIATION)) as f32;
        }
        self.values = self.values.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.values));
        self.mean += weight * difference;
        self.variance = (1.0 - weight) * (self.variance + weight * difference * difference);
    }

    /// A run that resumed at `step` measures anew from there: an older newest value is no later than it.
    pub(crate) fn resume(&mut self, step: u64) {
        if self.step >= step {
            self.step = step.saturating_sub(1);
        }
    }

    /// The step and the value that came last; `None` before the first.
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
    fn a_norm_that_falls_to_zero_stands_out() {
        let mut level = Level::default();
        (0..20).for_each(|step| level.add(step, 2.0));
        level.add(20, 0.0);
        assert!(level.deviations() < -100.0, "{level:?}");
    }
}
