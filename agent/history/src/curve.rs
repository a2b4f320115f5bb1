//! A number per step along an axis: the range and the newest value of each bin, and whether one was not finite.

use crate::axis::AxisChange;

/// The values of one bin.
///
/// A non-finite value hides no other value and is not hidden by one, because it has its own mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// The smallest finite value; without one, a non-finite value.
    low: f64,
    /// The largest finite value; without one, a non-finite value.
    high: f64,
    /// The newest value.
    last: f64,
    content: Content,
}

/// The kind of values in a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    Finite,
    /// Some values are not finite.
    Mixed,
    /// No value is finite.
    Broken,
}

const ABSENT: Range = Range { low: f64::NAN, high: f64::NAN, last: f64::NAN, content: Content::Nothing };

impl Range {
    fn of(value: f64) -> Self {
        let content = if value.is_finite() { Content::Finite } else { Content::Broken };
        Self { low: value, high: value, last: value, content }
    }

    fn is_absent(self) -> bool {
        self.content == Content::Nothing
    }

    fn is_broken(self) -> bool {
        matches!(self.content, Content::Mixed | Content::Broken)
    }

    /// Combines this bin with the one after it.
    fn then(self, later: Self) -> Self {
        if self.is_absent() {
            return later;
        }
        if later.is_absent() {
            return self;
        }
        let (low, high) = match (self.content, later.content) {
            (Content::Broken, _) => (later.low, later.high),
            (_, Content::Broken) => (self.low, self.high),
            _ => (self.low.min(later.low), self.high.max(later.high)),
        };
        let content = if self.content == later.content { self.content } else { Content::Mixed };
        Self { low, high, last: later.last, content }
    }
}

/// A curve: the values of each bin of its axis so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curve(Vec<Range>);

impl Curve {
    /// Adds a value to a bin of the axis.
    pub(crate) fn add(&mut self, bin: usize, value: f64) {
        if self.0.len() <= bin {
            self.0.resize(bin + 1, ABSENT);
        }
        self.0[bin] = self.0[bin].then(Range::of(value));
    }

    /// Applies a change of the axis.
    pub(crate) fn follow(&mut self, change: AxisChange) {
        if let Some(bins) = change.truncated_to {
            self.0.truncate(bins);
        }
        if change.merged {
            let merge = |pair: &[Range]| pair.iter().fold(ABSENT, |all, &range| all.then(range));
            self.0 = self.0.chunks(2).map(merge).collect();
        }
    }

    /// The newest value of each bin from `first` to `end`; `None` for a bin without values.
    pub(crate) fn last(&self, first: usize, end: usize) -> Vec<Option<f64>> {
        self.read(first, end, |range| range.last)
    }

    /// As [`Curve::last`], but the smallest finite value, or a non-finite one if no value is finite.
    pub(crate) fn low(&self, first: usize, end: usize) -> Vec<Option<f64>> {
        self.read(first, end, |range| range.low)
    }

    /// As [`Curve::low`], but the largest.
    pub(crate) fn high(&self, first: usize, end: usize) -> Vec<Option<f64>> {
        self.read(first, end, |range| range.high)
    }

    /// The bins from `first` to `end` with a non-finite value.
    pub(crate) fn broken(&self, first: usize, end: usize) -> Vec<usize> {
        (first..end).filter(|&bin| self.0.get(bin).is_some_and(|range| range.is_broken())).collect()
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
        assert_eq!(curve.broken(0, 2), [0]);
        assert_eq!((curve.low(0, 1), curve.last(0, 1)), (vec![Some(1.0)], vec![Some(f64::INFINITY)]));
        assert_eq!(curve.high(0, 1), [Some(2.0)], "nor does it hide the largest of the others");
        let mut only_nan = Curve::default();
        only_nan.add(0, f64::NAN);
        assert!(only_nan.low(0, 1)[0].unwrap().is_nan());
        assert_eq!(only_nan.broken(0, 1), [0]);
    }

    #[test]
    fn a_truncated_curve_forgets_what_lay_behind() {
        let mut curve = Curve::default();
        (0..4).for_each(|bin| curve.add(bin, bin as f64));
        curve.follow(AxisChange { truncated_to: Some(2), merged: false });
        assert_eq!(curve.last(0, 3), [Some(0.0), Some(1.0), None]);
    }
}
