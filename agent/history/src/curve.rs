//! A number per step along an axis: the range and the newest value of each bin.

use crate::axis::AxisChange;

/// The values of one bin.
///
/// A value that is not finite is kept: `high` is NaN as soon as one value is, so that no bin hides one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// The smallest value that is not NaN; NaN if all are.
    low: f64,
    /// The largest value; NaN if any is.
    high: f64,
    /// The newest value.
    last: f64,
}

/// A bin without a value: no value makes the low end larger than the high one.
const ABSENT: Range = Range { low: f64::INFINITY, high: f64::NEG_INFINITY, last: f64::NAN };

impl Range {
    fn of(value: f64) -> Self {
        Self { low: value, high: value, last: value }
    }

    fn is_absent(self) -> bool {
        self.low > self.high
    }

    /// This and what comes after it.
    fn then(self, later: Self) -> Self {
        if self.is_absent() {
            return later;
        }
        if later.is_absent() {
            return self;
        }
        let high = if self.high.is_nan() || later.high.is_nan() { f64::NAN } else { self.high.max(later.high) };
        // `f64::min` takes the one that is not NaN.
        Self { low: self.low.min(later.low), high, last: later.last }
    }
}

/// One curve: a range per bin of its axis, as far as it has got.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curve(Vec<Range>);

impl Curve {
    /// Takes a value in. The bin is one of the axis'.
    pub(crate) fn add(&mut self, bin: usize, value: f64) {
        if self.0.len() <= bin {
            self.0.resize(bin + 1, ABSENT);
        }
        self.0[bin] = self.0[bin].then(Range::of(value));
    }

    /// Follows the axis.
    pub(crate) fn follow(&mut self, change: AxisChange) {
        if let Some(bins) = change.truncated_to {
            self.0.truncate(bins);
        }
        if change.merged {
            let merge = |pair: &[Range]| pair.iter().fold(ABSENT, |all, &range| all.then(range));
            self.0 = self.0.chunks(2).map(merge).collect();
        }
    }

    /// Bin by bin from `first` on to `end`: the newest value, `None` where there is none.
    pub(crate) fn last(&self, first: usize, end: usize) -> Vec<Option<f64>> {
        self.read(first, end, |range| range.last)
    }

    /// As [`Curve::last`]: the smallest value.
    pub(crate) fn low(&self, first: usize, end: usize) -> Vec<Option<f64>> {
        self.read(first, end, |range| range.low)
    }

    /// As [`Curve::last`]: the largest value, NaN if any is.
    pub(crate) fn high(&self, first: usize, end: usize) -> Vec<Option<f64>> {
        self.read(first, end, |range| range.high)
    }

    fn read(&self, first: usize, end: usize, of: impl Fn(&Range) -> f64) -> Vec<Option<f64>> {
        let range = |bin: usize| self.0.get(bin).filter(|range| !range.is_absent()).map(&of);
        (first..end).map(range).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MERGED: AxisChange = AxisChange { truncated_to: None, merged: true };

    #[test]
    fn a_merged_bin_keeps_the_range_and_the_newest_value() {
        let mut curve = Curve::default();
        for (bin, value) in [(0, 3.0), (1, 1.0), (3, 2.0)] {
            curve.add(bin, value);
        }
        assert_eq!(curve.last(0, 5), [Some(3.0), Some(1.0), None, Some(2.0), None]);
        curve.follow(MERGED);
        assert_eq!(curve.low(0, 2), [Some(1.0), Some(2.0)]);
        assert_eq!(curve.high(0, 2), [Some(3.0), Some(2.0)]);
        assert_eq!(curve.last(0, 2), [Some(1.0), Some(2.0)]);
    }

    #[test]
    fn a_value_that_is_not_finite_is_never_hidden_by_a_later_one() {
        let mut curve = Curve::default();
        for value in [1.0, f64::NAN, 2.0] {
            curve.add(0, value);
        }
        curve.add(1, f64::INFINITY);
        curve.follow(MERGED);
        assert!(curve.high(0, 1)[0].unwrap().is_nan());
        assert_eq!((curve.low(0, 1), curve.last(0, 1)), (vec![Some(1.0)], vec![Some(f64::INFINITY)]));
        let mut only_nan = Curve::default();
        only_nan.add(0, f64::NAN);
        assert!(only_nan.low(0, 1)[0].unwrap().is_nan());
    }

    #[test]
    fn a_truncated_curve_forgets_what_lay_behind() {
        let mut curve = Curve::default();
        (0..4).for_each(|bin| curve.add(bin, bin as f64));
        curve.follow(AxisChange { truncated_to: Some(2), merged: false });
        assert_eq!(curve.last(0, 3), [Some(0.0), Some(1.0), None]);
    }
}
