//! The reading of a tensor times a factor, without changing the tensor.

use trainmon_core::{Scalar, Statistic, TensorStats};
use trainmon_stats::Request;

/// The factor for every value, 1 / loss scale. Finite and above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Factor(f64);

impl Factor {
    /// Leaves values unchanged.
    pub(super) const ONE: Self = Self(1.0);

    /// `None` unless `factor` is finite and above zero.
    pub(super) fn new(factor: f64) -> Option<Self> {
        (factor.is_finite() && factor > 0.0).then_some(Self(factor))
    }

    /// The request for the unscaled tensor. [`scale`](Self::scale) converts its reading to the requested one.
    ///
    /// |x| x factor < eps is equivalent to |x| < eps / factor.
    pub(super) fn request(self, request: Request) -> Request {
        let eps = if request.statistics.contains(Statistic::Zeros) { request.eps / self.0 } else { 0.0 };
        Request { eps, ..request }
    }

    /// Converts the reading of the unscaled tensor to that of the scaled one. Checksums remain those of the memory.
    pub(super) fn scale(self, reading: TensorStats) -> TensorStats {
        if self == Self::ONE {
            return reading;
        }
        let Self(factor) = self;
        TensorStats {
            min: Scalar::Float(reading.min.as_f64() * factor),
            max: Scalar::Float(reading.max.as_f64() * factor),
            mean: reading.mean * factor,
            norm: reading.norm * factor,
            abs_max: reading.abs_max * factor,
            std: reading.std * factor,
            ..reading
        }
    }
}
