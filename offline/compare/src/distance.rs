//! How far two tensors are apart, element by element, in one pass over both.

use trainmon_dump::tensor_file::StoredTensor;

/// Elements looked at together: both buffers stay in the first cache.
const CHUNK: usize = 2048;

/// What one pass over a pair of tensors of the same number of elements gives. All sums in float64.
#[derive(Clone, Debug, PartialEq)]
pub struct Distance {
    /// Elements.
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
    /// The largest |a−b| / |b|.
    pub max_relative: f64,
    /// Elements whose |a−b| / |b| is below 0.001.
    pub within_thousandth: usize,
    /// Elements whose |a−b| / |b| is below 0.005.
    pub within_five_thousandths: usize,
    /// The largest |b|.
    pub golden_max: f64,
    /// Elements that are NaN or infinite on one side, or in different ways on both.
    pub odd: usize,
    /// Elements that are NaN or infinite on both sides: left out of all else, as zeros.
    pub both_not_finite: usize,
    /// How many elements are apart by how many of the golden's units in the last place: 0, up to 1, 2, 4, … and beyond 2¹⁴.
    pub ulps: [u64; ULP_BINS],
}

/// How relative differences are reckoned. Where the golden is 0 both sides are taken as larger by the type's epsilon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quotient {
    /// In float32, as msprobe does for tensors of at most that precision.
    Single,
    /// In float64.
    Double,
}

impl Quotient {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Double if b == 0.0 => (a + f64::EPSILON - f64::EPSILON).abs() / f64::EPSILON,
            Self::Double => ((a - b) / b).abs(),
            Self::Single => {
                let (a, b) = (a as f32, b as f32);
                let (a, b) = if b == 0.0 { (a + f32::EPSILON, f32::EPSILON) } else { (a, b) };
                f64::from(((a - b) / b).abs())
            }
        }
    }
}

/// Bins of [`Distance::ulps`].
pub(crate) const ULP_BINS: usize = 17;

impl Distance {
    /// Measures. `roundoff` is the golden dtype's unit round-off. Zero elements give a distance of nothing.
    pub fn measure(target: &StoredTensor, golden: &StoredTensor, roundoff: f64, quotient: Quotient) -> Self {
        let mut distance = Self {
            count: golden.numbers().min(target.numbers()),
            product: 0.0,
            target_square: 0.0,
            golden_square: 0.0,
            difference_square: 0.0,
            max_absolute: 0.0,
            max_relative: 0.0,
            within_thousandth: 0,
            within_five_thousandths: 0,
            golden_max: 0.0,
            odd: 0,
            both_not_finite: 0,
            ulps: [0; ULP_BINS],
        };
        let (mut a, mut b) = ([0.0; CHUNK], [0.0; CHUNK]);
        let mut from = 0;
        while from < distance.count {
            let length = CHUNK.min(distance.count - from);
            target.read_f64(from, &mut a[..length]);
            golden.read_f64(from, &mut b[..length]);
            distance.add(&a[..length], &b[..length], roundoff, quotient);
            from += length;
        }
        distance
    }

    fn add(&mut self, a: &[f64], b: &[f64], roundoff: f64, quotient: Quotient) {
        for (&a, &b) in a.iter().zip(b) {
            if !(a.is_finite() && b.is_finite()) {
                // An infinity and its opposite are told apart here; msprobe takes them for the same.
                let is_same = (a.is_nan() && b.is_nan()) || a == b;
                self.odd += usize::from(!is_same);
                self.both_not_finite += usize::from(!a.is_finite() && !b.is_finite());
                self.within_thousandth += 1;
                self.within_five_thousandths += 1;
                continue;
            }
            let difference = (a - b).abs();
            self.product += a * b;
            self.target_square += a * a;
            self.golden_square += b * b;
            self.difference_square += difference * difference;
            self.max_absolute = self.max_absolute.max(difference);
            self.golden_max = self.golden_max.max(b.abs());
            let relative = quotient.of(a, b);
            self.max_relative = self.max_relative.max(relative);
            self.within_thousandth += usize::from(relative < 0.001);
            self.within_five_thousandths += usize::from(relative < 0.005);
            self.ulps[ulp_bin(difference, b, roundoff)] += 1;
        }
    }

    /// The cosine of the angle between both; 1 for two zeros, `None` for one.
    pub fn cosine(&self) -> Option<f64> {
        let (a, b) = (self.target_square.sqrt(), self.golden_square.sqrt());
        match (a <= f64::EPSILON, b <= f64::EPSILON) {
            (true, true) => Some(1.0),
            (false, false) => Some(self.product / (a * b)),
            _ => None,
        }
    }

    /// The L2 norm of the difference by that of the golden; 0 for none, infinite beside a golden of zeros.
    pub fn relative(&self) -> f64 {
        match (self.difference_square, self.golden_square) {
            (0.0, _) => 0.0,
            (_, 0.0) => f64::INFINITY,
            (difference, golden) => (difference / golden).sqrt(),
        }
    }

    /// The smallest bound in units in the last place that holds for the share `quantile` of the elements.
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

fn ulp_bin(difference: f64, golden: f64, roundoff: f64) -> usize {
    if difference == 0.0 {
        return 0;
    }
    // The distance between neighbours is 2u times the power of two at or below the number.
    let exponent = if golden == 0.0 { 0 } else { exponent_of(golden) };
    let ulps = difference / (2.0 * roundoff * power_of_two(exponent));
    if ulps <= 1.0 { 1 } else { (exponent_of(ulps) as usize + 2).min(ULP_BINS - 1) }
}

/// The exponent of the power of two at or below a number that is not 0; subnormal numbers count as the smallest normal one.
fn exponent_of(value: f64) -> i32 {
    (((value.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(-1022)
}

/// From the bits: `powi` is a call, and this stands in the innermost loop. Exponents of normal numbers only.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
