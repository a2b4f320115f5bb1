//! From sums and extremes to a reading.

use trainmon_core::{Reading, Scalar, Statistic};

use crate::Request;
use crate::partial::Partial;

/// Below this share of the sum of squares, the sum of squared distances from the mean is too small to be had by
/// subtraction: float64 would leave it fewer than eight good digits. A second, centred pass is made then.
const ILL_CONDITIONED: f64 = 1e-7;

/// Squares of smaller magnitudes fall out of float64's normal range (1e-308); the norm is then taken in a scaled pass.
const TINY: f64 = 1e-140;

/// A pass that gives the sum of ((x - centre) / divisor)² over the visited elements.
pub(crate) type SpreadPass<'f> = &'f dyn Fn(f64, f64) -> f64;

/// The findings of a pass, and how much it visited.
pub(crate) struct Found<E> {
    pub(crate) partial: Partial<E>,
    /// Elements visited.
    pub(crate) visited: u64,
    /// How often each of them occurs.
    pub(crate) multiplicity: u64,
}

impl<E: Copy> Found<E> {
    /// Fills an empty reading. `spread` is called in rare cases only: see the constants above.
    pub(crate) fn fill(
        &self,
        reading: &mut Reading,
        request: Request,
        scalar: fn(E) -> Scalar,
        spread: SpreadPass<'_>,
    ) {
        let times = self.multiplicity;
        let found = &self.partial;
        reading.nans = found.nans * times;
        reading.infs = found.infs * times;
        reading.zeros = found.zeros * times;
        reading.count = self.visited * times;
        if found.nans > 0 {
            reading.norm = f64::NAN;
            return;
        }
        reading.mean = found.sum.value() / self.visited as f64;
        reading.min = scalar(found.min);
        reading.max = scalar(found.max);
        reading.abs_max = reading.min.as_f64().abs().max(reading.max.as_f64().abs());
        self.fill_second_moments(reading, request, spread);
    }

    fn fill_second_moments(&self, reading: &mut Reading, request: Request, spread: SpreadPass<'_>) {
        let times = self.multiplicity as f64;
        let squares = self.partial.squares.value();
        let largest = reading.abs_max;
        let is_extreme = largest.is_finite() && largest > 0.0 && (!squares.is_finite() || largest < TINY);
        let divisor = if is_extreme { largest } else { 1.0 };
        reading.norm =
            if is_extreme { largest * (spread(0.0, divisor) * times).sqrt() } else { (squares * times).sqrt() };
        if !request.statistics.contains(Statistic::Std) || reading.count < 2 || reading.infs > 0 {
            return;
        }
        let distances = squares - self.partial.sum.value() * reading.mean;
        let distances = if is_extreme || distances <= ILL_CONDITIONED * squares {
            spread(reading.mean, divisor)
        } else {
            distances
        };
        reading.std = divisor * (distances * times / (reading.count - 1) as f64).sqrt();
    }
}
