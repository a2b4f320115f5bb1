//! The reading of a tensor times a factor, without touching the tensor.

use trainmon_core::{Scalar, Statistic, TensorStats};
use trainmon_stats::Request;

/// What every value is meant to be multiplied by: 1 / loss scale. Finite and above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Factor(f64);

impl Factor {
    /// Values as they are.
    pub(super) const ONE: Self = Self(1.0);

    /// `None` for what no loss scale gives.
    pub(super) fn new(factor: f64) -> Option<Self> {
        (factor.is_finite() && factor > 0.0).then_some(Self(factor))
    }

    /// What to ask of the tensor as it is, so that [`scale`](Self::scale) makes the reading asked for.
    ///
    /// |x| x factor < eps is |x| < eps / factor.
    pub(super) fn request(self, request: Request) -> Request {
        let eps = if request.statistics.contains(Statistic::Zeros) { request.eps / self.0 } else { 0.0 };
        Request { eps, ..request }
    }

    /// The reading of the scaled tensor from that of the tensor as it is. Checksums stay those of the memory.
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
