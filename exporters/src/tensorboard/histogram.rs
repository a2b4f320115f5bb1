//! The distribution of update ratios over the parameters, in powers of ten.

use super::message::HistogramMessage;

/// The lowest and highest separate decade: ratios outside do not occur in a working training.
const LOWEST_DECADE: i32 = -10;
const HIGHEST_DECADE: i32 = 2;
/// The number of buckets per decade: each is 78 % wider than the one below.
const PER_DECADE: i32 = 4;

/// A histogram of ratios: buckets of a quarter decade from 1e-10 to 100, one below and one above.
///
/// The numbers are decimal logarithms, because TensorBoard's axes are linear: -3 is a change of a thousandth. A ratio
/// of zero counts as 1e-10.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    smallest: f64,
    largest: f64,
    sum: f64,
    sum_of_squares: f64,
    counts: Vec<u64>,
}

impl Histogram {
    /// The description in TensorBoard next to the chart.
    pub(super) const DESCRIPTION: &str =
        "Decimal logarithm of each parameter's update ratio (change divided by size): -3 is a change of a thousandth.";

    /// The histogram of these ratios, and the number of ratios excluded because they are negative or not finite. No
    /// histogram without any ratio.
    pub fn of_ratios(ratios: impl IntoIterator<Item = f64>) -> (Option<Self>, u64) {
        let (mut histogram, mut left_out) = (Self::empty(), 0);
        for ratio in ratios {
            if ratio.is_finite() && ratio >= 0.0 {
                histogram.add(ratio.log10().max(f64::from(LOWEST_DECADE)));
            } else {
                left_out += 1;
            }
        }
        let is_empty = histogram.counts.iter().all(|&count| count == 0);
        ((!is_empty).then_some(histogram), left_out)
    }

    fn empty() -> Self {
        let inner = (HIGHEST_DECADE - LOWEST_DECADE) * PER_DECADE;
        Self {
            smallest: f64::INFINITY,
            largest: f64::NEG_INFINITY,
            sum: 0.0,
            sum_of_squares: 0.0,
            counts: vec![0; inner as usize + 2],
        }
    }

    fn add(&mut self, logarithm: f64) {
        let above_lowest = (logarithm - f64::from(LOWEST_DECADE)) * f64::from(PER_DECADE);
        // Saturating: values far above the range are in the last bucket.
        let bucket = (above_lowest.floor() as usize).saturating_add(1).min(self.counts.len() - 1);
        self.counts[bucket] += 1;
        self.smallest = self.smallest.min(logarithm);
        self.largest = self.largest.max(logarithm);
        self.sum += logarithm;
        self.sum_of_squares += logarithm * logarithm;
    }

    pub(super) fn to_message(&self) -> HistogramMessage {
        let Self { smallest, largest, sum, sum_of_squares, ref counts } = *self;
        let last = counts.len() - 1;
        let limit = |bucket: usize| {
            if bucket == last { f64::MAX } else { f64::from(LOWEST_DECADE) + bucket as f64 / f64::from(PER_DECADE) }
        };
        HistogramMessage {
            min: smallest,
            max: largest,
            num: counts.iter().sum::<u64>() as f64,
            sum,
            sum_squares: sum_of_squares,
            bucket_limit: (0..counts.len()).map(limit).collect(),
            bucket: counts.iter().map(|&count| count as f64).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The buckets that hold something, as lower end, upper end and count.
    fn filled(ratios: &[f64]) -> Vec<(f64, f64, f64)> {
        let message = Histogram::of_ratios(ratios.iter().copied()).0.unwrap().to_message();
        let lower = std::iter::once(f64::MIN).chain(message.bucket_limit.iter().copied());
        let buckets = lower.zip(&message.bucket_limit).zip(&message.bucket);
        buckets.filter(|&(_, &count)| count > 0.0).map(|((low, &high), &count)| (low, high, count)).collect()
    }

    #[test]
    fn a_ratio_lies_in_the_quarter_decade_that_begins_with_it() {
        assert_eq!(filled(&[1e-3, 1.7e-3]), [(-3.0, -2.75, 2.0)]);
        assert_eq!(filled(&[0.999e-3, 1.8e-3]), [(-3.25, -3.0, 1.0), (-2.75, -2.5, 1.0)]);
    }

    #[test]
    fn the_ends_take_what_lies_beyond_them() {
        assert_eq!(filled(&[0.0, 1e-300, 1e-10]), [(-10.0, -9.75, 3.0)]);
        assert_eq!(filled(&[99.0, 100.0, 1e300]), [(1.75, 2.0, 1.0), (2.0, f64::MAX, 2.0)]);
    }

    #[test]
    fn what_has_no_logarithm_is_left_out_and_counted() {
        let (histogram, left_out) = Histogram::of_ratios([f64::NAN, f64::INFINITY, -1.0, 0.1]);
        let message = histogram.unwrap().to_message();
        assert_eq!(
            (message.num, message.min, message.max, message.sum, message.sum_squares),
            (1.0, -1.0, -1.0, -1.0, 1.0)
        );
        assert_eq!(left_out, 3);
        assert_eq!(Histogram::of_ratios([f64::NAN]), (None, 1));
        assert_eq!(Histogram::of_ratios([]), (None, 0));
    }
}
