//! Turns sums and extremes into a reading.

use trainmon_core::{Scalar, Statistic, TensorStats, TensorView};

use crate::Request;
use crate::checksum::Checksums;
use crate::partial::Partial;

/// The share of the sum of squares below which the sum of squared deviations is not computed by subtraction.
/// The result would have fewer than eight correct digits, so a second, centred pass computes it.
const ILL_CONDITIONED: f64 = 1e-7;

/// The magnitude below which squares leave float64's normal range (1e-308), so that the norm needs a scaled pass.
const TINY: f64 = 1e-140;

/// A pass that returns the sum of ((x - centre) / divisor)² over the visited elements.
pub(crate) type SpreadPass<'f> = &'f dyn Fn(f64, f64) -> f64;

/// The result of a pass and the number of elements it visited.
pub(crate) struct PassResult<E> {
    pub(crate) partial: Partial<E>,
    /// Elements visited.
    pub(crate) visited: u64,
    /// How often each visited element occurs in the tensor.
    pub(crate) multiplicity: u64,
    pub(crate) checksums: Checksums,
}

impl<E: Copy> PassResult<E> {
    /// Returns the reading of a nonempty tensor. Calls `spread` only in rare cases: see the constants above.
    ///
    /// The struct is built in place: filling it first and then moving it would add a tenth to the time of a small tensor.
    pub(crate) fn reading(
        &self,
        view: &TensorView<'_>,
        request: Request,
        scalar: fn(E) -> Scalar,
        spread: SpreadPass<'_>,
    ) -> TensorStats {
        let times = self.multiplicity;
        let found = &self.partial;
        let count = self.visited * times;
        let has_nan = found.nans > 0;
        let or_nan = |extreme| if has_nan { Scalar::Float(f64::NAN) } else { scalar(extreme) };
        let (min, max) = (or_nan(found.min), or_nan(found.max));
        let abs_max = if has_nan { f64::NAN } else { min.as_f64().abs().max(max.as_f64().abs()) };
        let mean = if has_nan { f64::NAN } else { found.sum.value() / self.visited as f64 };
        let (norm, std) =
            if has_nan { (f64::NAN, f64::NAN) } else { self.second_moments(request, count, abs_max, mean, spread) };
        TensorStats {
            dtype: view.dtype(),
            shape: view.shape(),
            min,
            max,
            mean,
            norm,
            abs_max,
            std,
            nans: found.nans * times,
            infs: found.infs * times,
            zeros: found.zeros * times,
            count,
            crc32: self.checksums.crc,
            xor64: self.checksums.xor,
        }
    }

    /// Returns the norm and the standard deviation (NaN unless requested).
    fn second_moments(
        &self,
        request: Request,
        count: u64,
        largest: f64,
        mean: f64,
        spread: SpreadPass<'_>,
    ) -> (f64, f64) {
        let times = self.multiplicity as f64;
        let squares = self.partial.squares.value();
        // The sum of squares of an expanded tensor can overflow even if that of the stored elements does not.
        let overflows = !(squares * times).is_finite();
        let is_extreme = largest.is_finite() && largest > 0.0 && (overflows || largest < TINY);
        let divisor = if is_extreme { largest } else { 1.0 };
        let norm = if is_extreme { largest * (spread(0.0, divisor) * times).sqrt() } else { (squares * times).sqrt() };
        if !request.statistics.contains(Statistic::Std) || count < 2 || self.partial.infs > 0 {
            return (norm, f64::NAN);
        }
        let distances = squares - self.partial.sum.value() * mean;
        let distances =
            if is_extreme || distances <= ILL_CONDITIONED * squares { spread(mean, divisor) } else { distances };
        (norm, divisor * (distances * times / (count - 1) as f64).sqrt())
    }
}
