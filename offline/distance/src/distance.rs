//! One pass over a pair of tensors.

use rayon::prelude::*;
use trainmon_core::Dtype;
use trainmon_tensor_files::StoredTensor;

use crate::quotient::Quotient;
use crate::units::{ULP_BINS, ulp_bin};

/// Elements per block: both buffers stay in the first-level cache.
const CHUNK: usize = 2048;
/// Chunks per task of a thread. Their sums are added in order, so the result does not depend on the number of threads.
const CHUNKS_PER_TASK: usize = 32;

/// The measures of one pass over two tensors with the same number of elements. All sums are in float64. Elements that are NaN
/// or infinite on one side count only in the fields that name them.
#[derive(Clone, Debug, PartialEq)]
pub struct Distance {
    /// The number of elements.
    pub count: usize,
    /// Σ a·b.
    pub product: f64,
    /// Σ a².
    pub target_square: f64,
    /// Σ b².
    pub golden_square: f64,
    /// Σ (a−b)².
    pub difference_square: f64,
    /// The largest |a−b|.
    pub max_absolute: f64,
    /// The index of that element, in row-major order.
    pub max_absolute_at: usize,
    /// The largest |a−b| / |b|.
    pub max_relative: f64,
    /// Elements whose |a−b| / |b| is below 0.001.
    pub within_thousandth: usize,
    /// Elements whose |a−b| / |b| is below 0.005.
    pub within_five_thousandths: usize,
    /// The largest |b|.
    pub golden_max: f64,
    /// Elements that differ at all.
    pub differing: u64,
    /// Elements that differ by more than one unit in the last place of the coarser dtype.
    pub beyond_unit: u64,
    /// Elements that are NaN or infinite on one side, or in different ways on both.
    pub odd: usize,
    /// The index of the first of them.
    pub first_odd: Option<usize>,
    /// Elements that are NaN or infinite on both sides: zeros in all other fields.
    pub both_not_finite: usize,
    /// NaN or infinite elements of the target and the baseline.
    pub not_finite: [u64; 2],
    /// NaN elements of the target and the baseline.
    pub nans: [u64; 2],
    /// A histogram of differences in units in the last place of the baseline: 0, up to 1, 2, 4, … and beyond 2¹⁴.
    pub ulps: [u64; ULP_BINS],
}

/// The precision of the compared dtypes.
#[derive(Clone, Copy)]
struct Units {
    /// The unit round-off of the baseline's dtype.
    golden: f64,
    /// The distance of neighbouring numbers around 1 in the coarser dtype.
    spacing: f64,
    quotient: Quotient,
}

impl Units {
    fn of(target: Dtype, golden: Dtype, quotient: Quotient) -> Self {
        // Integers have no rounding: 1 is one unit.
        let [one, other] = [target, golden].map(Dtype::unit_roundoff);
        let spacing = 2.0 * one.unwrap_or(0.0).max(other.unwrap_or(0.0));
        Self { golden: other.unwrap_or(1.0), spacing, quotient }
    }
}

impl Distance {
    /// Measures two tensors element by element. Empty tensors have no distance. Cost: one read of both, no allocation.
    pub fn measure(target: &StoredTensor, golden: &StoredTensor, quotient: Quotient) -> Self {
        let count = golden.numbers().min(target.numbers());
        let mut distance = Self::nothing();
        distance.add_range(target, golden, 0..count, Units::of(target.dtype(), golden.dtype(), quotient));
        distance
    }

    /// Measures on all cores. Sums may differ from those of [`measure`](Self::measure) in their last bits.
    pub fn measure_on_all_cores(target: &StoredTensor, golden: &StoredTensor, quotient: Quotient) -> Self {
        const TASK: usize = CHUNK * CHUNKS_PER_TASK;
        let count = golden.numbers().min(target.numbers());
        let units = Units::of(target.dtype(), golden.dtype(), quotient);
        let part = |task: usize| {
            let mut part = Self::nothing();
            part.add_range(target, golden, task * TASK..((task + 1) * TASK).min(count), units);
            part
        };
        let parts: Vec<Self> = (0..count.div_ceil(TASK)).into_par_iter().map(part).collect();
        parts.iter().fold(Self::nothing(), Self::plus)
    }

    fn nothing() -> Self {
        Self {
            count: 0,
            product: 0.0,
            target_square: 0.0,
            golden_square: 0.0,
            difference_square: 0.0,
            max_absolute: 0.0,
            max_absolute_at: 0,
            max_relative: 0.0,
            within_thousandth: 0,
            within_five_thousandths: 0,
            golden_max: 0.0,
            differing: 0,
            beyond_unit: 0,
            odd: 0,
            first_odd: None,
            both_not_finite: 0,
            not_finite: [0, 0],
            nans: [0, 0],
            ulps: [0; ULP_BINS],
        }
    }

    fn add_range(&mut self, target: &StoredTensor, golden: &StoredTensor, range: std::ops::Range<usize>, units: Units) {
        let (mut a, mut b) = ([0.0; CHUNK], [0.0; CHUNK]);
        let mut from = range.start;
        while from < range.end {
            let length = CHUNK.min(range.end - from);
            target.read_f64(from, &mut a[..length]);
            golden.read_f64(from, &mut b[..length]);
            self.add(&a[..length], &b[..length], from, units);
            from += length;
        }
    }

    fn add(&mut self, a: &[f64], b: &[f64], first: usize, units: Units) {
        self.count += a.len();
        for (index, (&a, &b)) in a.iter().zip(b).enumerate() {
            if !(a.is_finite() && b.is_finite()) {
                self.add_not_finite(a, b, first + index);
                continue;
            }
            let difference = (a - b).abs();
            self.product += a * b;
            self.target_square += a * a;
            self.golden_square += b * b;
            self.difference_square += difference * difference;
            if difference > self.max_absolute {
                (self.max_absolute, self.max_absolute_at) = (difference, first + index);
            }
            self.differing += u64::from(difference > 0.0);
            self.beyond_unit += u64::from(difference > units.spacing * a.abs().max(b.abs()));
            self.golden_max = self.golden_max.max(b.abs());
            let relative = units.quotient.of(a, b);
            self.max_relative = self.max_relative.max(relative);
            self.within_thousandth += usize::from(relative < 0.001);
            self.within_five_thousandths += usize::from(relative < 0.005);
            self.ulps[ulp_bin(difference, b, units.golden)] += 1;
        }
    }

    fn add_not_finite(&mut self, a: f64, b: f64, at: usize) {
        // An infinity differs from its opposite; msprobe treats them as equal.
        let is_same = (a.is_nan() && b.is_nan()) || a == b;
        if !is_same {
            self.odd += 1;
            self.first_odd.get_or_insert(at);
            self.differing += 1;
            self.beyond_unit += 1;
        }
        self.both_not_finite += usize::from(!a.is_finite() && !b.is_finite());
        for (side, value) in [a, b].into_iter().enumerate() {
            self.not_finite[side] += u64::from(!value.is_finite());
            self.nans[side] += u64::from(value.is_nan());
        }
        self.within_thousandth += 1;
        self.within_five_thousandths += 1;
    }

    /// Adds the measures of the next part.
    fn plus(self, other: &Self) -> Self {
        let (max_absolute, max_absolute_at) = if other.max_absolute > self.max_absolute {
            (other.max_absolute, other.max_absolute_at)
        } else {
            (self.max_absolute, self.max_absolute_at)
        };
        Self {
            count: self.count + other.count,
            product: self.product + other.product,
            target_square: self.target_square + other.target_square,
            golden_square: self.golden_square + other.golden_square,
            difference_square: self.difference_square + other.difference_square,
            max_absolute,
            max_absolute_at,
            max_relative: self.max_relative.max(other.max_relative),
            within_thousandth: self.within_thousandth + other.within_thousandth,
            within_five_thousandths: self.within_five_thousandths + other.within_five_thousandths,
            golden_max: self.golden_max.max(other.golden_max),
            differing: self.differing + other.differing,
            beyond_unit: self.beyond_unit + other.beyond_unit,
            odd: self.odd + other.odd,
            first_odd: self.first_odd.or(other.first_odd),
            both_not_finite: self.both_not_finite + other.both_not_finite,
            not_finite: std::array::from_fn(|side| self.not_finite[side] + other.not_finite[side]),
            nans: std::array::from_fn(|side| self.nans[side] + other.nans[side]),
            ulps: std::array::from_fn(|bin| self.ulps[bin] + other.ulps[bin]),
        }
    }

    /// The largest difference and its index; infinite if an element is NaN or infinite on one side.
    pub fn largest(&self) -> (f64, usize) {
        self.first_odd.map_or((self.max_absolute, self.max_absolute_at), |at| (f64::INFINITY, at))
    }

    /// The L2 norm of the difference; NaN or infinite if an element is, on one side.
    pub fn l2(&self) -> f64 {
        norm(self.difference_square, self.odd > 0, self.nans != [0, 0])
    }

    /// The L2 norms of target and baseline; NaN or infinite if an element is.
    pub fn norms(&self) -> [f64; 2] {
        let squares = [self.target_square, self.golden_square];
        std::array::from_fn(|side| norm(squares[side], self.not_finite[side] > 0, self.nans[side] > 0))
    }

    /// The cosine of the angle between both tensors; 1 for two zero tensors, `None` for one.
    pub fn cosine(&self) -> Option<f64> {
        let (a, b) = (self.target_square.sqrt(), self.golden_square.sqrt());
        match (a <= f64::EPSILON, b <= f64::EPSILON) {
            (true, true) => Some(1.0),
            (false, false) => Some(self.product / (a * b)),
            _ => None,
        }
    }

    /// The L2 norm of the difference relative to that of the baseline; 0 for no difference, infinite for a zero baseline.
    pub fn relative(&self) -> f64 {
        match (self.difference_square, self.golden_square) {
            (0.0, _) => 0.0,
            (_, 0.0) => f64::INFINITY,
            (difference, golden) => (difference / golden).sqrt(),
        }
    }

    /// The smallest limit, in units in the last place, that the share `quantile` of the elements stays within.
    pub fn ulp_quantile(&self, quantile: f64) -> f64 {
        let total: u64 = self.ulps.iter().sum();
        let mut seen = 0;
        for (bin, count) in self.ulps.iter().enumerate() {
            seen += count;
            if seen as f64 >= quantile * total as f64 {
                return if bin == 0 { 0.0 } else { 2.0_f64.powi(bin as i32 - 1) };
            }
        }
        f64::INFINITY
    }
}

fn norm(square: f64, is_not_finite: bool, is_nan: bool) -> f64 {
    match (is_not_finite, is_nan) {
        (true, true) => f64::NAN,
        (true, false) => f64::INFINITY,
        (false, _) => square.sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use trainmon_core::Shape;

    use super::*;

    fn tensor(numbers: &[f32]) -> StoredTensor {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        StoredTensor::new(Dtype::F32, Shape::new(&[numbers.len() as i64]).unwrap(), bytes.into()).unwrap()
    }

    fn measured(target: &StoredTensor, golden: &StoredTensor) -> Distance {
        let one = Distance::measure(target, golden, Quotient::Double);
        assert_eq!(one, Distance::measure_on_all_cores(target, golden, Quotient::Double));
        one
    }

    #[test]
    fn one_pass_finds_norms_product_and_the_worst_element() {
        let found = measured(&tensor(&[3.0, 4.0, 0.0]), &tensor(&[3.0, 4.0, 12.0]));
        assert_eq!((found.l2(), found.norms(), found.largest(), found.product), (12.0, [5.0, 13.0], (12.0, 2), 25.0));
        assert_eq!((found.differing, found.beyond_unit), (1, 1));
    }

    #[test]
    fn a_unit_in_the_last_place_is_rounding_and_two_are_not() {
        let next = |x: f32, by: u32| f32::from_bits(x.to_bits() + by);
        let found = measured(&tensor(&[1.0, 1.5, 2.0]), &tensor(&[next(1.0, 1), next(1.5, 2), 2.0]));
        assert_eq!((found.differing, found.beyond_unit), (2, 1));
        let bytes: Vec<u8> = [0x3f80u16, 0x4000].iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let coarse = StoredTensor::new(Dtype::Bf16, Shape::new(&[2]).unwrap(), bytes.into()).unwrap();
        let found = measured(&coarse, &tensor(&[1.003, 2.1]));
        assert_eq!((found.differing, found.beyond_unit), (2, 1));
    }

    #[test]
    fn what_is_no_number_is_counted_apart() {
        let same = measured(&tensor(&[f32::NAN, f32::INFINITY]), &tensor(&[f32::NAN, f32::INFINITY]));
        assert_eq!((same.differing, same.largest(), same.not_finite), (0, (0.0, 0), [2, 2]));
        let other = measured(&tensor(&[1.0, f32::NAN]), &tensor(&[2.0, 1.0]));
        assert_eq!((other.beyond_unit, other.largest()), (2, (f64::INFINITY, 1)));
        assert!(other.l2().is_nan() && other.norms()[0].is_nan());
    }

    #[test]
    fn parts_are_put_together_in_order() {
        let a: Vec<f32> = (0..CHUNK * CHUNKS_PER_TASK * 2 + 7).map(|index| index as f32).collect();
        let mut b = a.clone();
        b[CHUNK * CHUNKS_PER_TASK + 5] += 1024.0;
        let all = Distance::measure_on_all_cores(&tensor(&a), &tensor(&b), Quotient::Double);
        assert_eq!((all.l2(), all.largest().1, all.differing), (1024.0, CHUNK * CHUNKS_PER_TASK + 5, 1));
        assert_eq!(all.count, a.len());
    }
}
