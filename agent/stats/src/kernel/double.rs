//! The arithmetic of float64.
//!
//! Squares are rounded here, so no fused multiply-add is used: every instruction set gives the same bits.

use trainmon_core::Scalar;

use super::{Arithmetic, LANES, ZeroBound, fold_lanes, sum_of_lanes};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::isa::Isa;
use crate::partial::{Partial, Totals};

const MAGNITUDE: u64 = 0x7fff_ffff_ffff_ffff;

/// The magnitude, 2^-511, below which elements are ignored in the sum of squares. Their squares are subnormal, which
/// processors compute about 50 times slower. They do not affect any sum used for a norm (see [`finish`](crate::finish)).
pub(super) const LEAST_SQUARED: f64 = f64::from_bits((1023 - 511) << 52);

/// Returns the square, or 0 below [`LEAST_SQUARED`]. NaN stays NaN.
#[inline]
fn square(value: f64) -> f64 {
    if value.abs() < LEAST_SQUARED { 0.0 } else { value * value }
}

/// The arithmetic of float64.
pub(crate) struct Double;

/// The running results of 16 interleaved sequences.
pub(super) struct DoubleLanes {
    pub(super) sum: [f64; LANES],
    pub(super) squares: [f64; LANES],
    pub(super) min: [f64; LANES],
    pub(super) max: [f64; LANES],
    pub(super) zeros: [u64; LANES],
}

impl DoubleLanes {
    pub(super) const NOTHING: Self = Self {
        sum: [0.0; LANES],
        squares: [0.0; LANES],
        min: [f64::INFINITY; LANES],
        max: [f64::NEG_INFINITY; LANES],
        zeros: [0; LANES],
    };

    /// Adds up to 16 elements, the first to the first lane. A NaN does not change the extremes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "must take on the instruction set of its caller")]
    pub(super) fn add<const ZEROS: bool>(&mut self, elements: &[f64], zero_bits: u64) {
        for (lane, &value) in elements.iter().enumerate() {
            self.sum[lane] += value;
            self.squares[lane] += square(value);
            self.min[lane] = if value < self.min[lane] { value } else { self.min[lane] };
            self.max[lane] = if value > self.max[lane] { value } else { self.max[lane] };
            if ZEROS {
                self.zeros[lane] += u64::from(value.to_bits() & MAGNITUDE < zero_bits);
            }
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "must take on the instruction set of its caller")]
    pub(super) fn total(&self) -> Totals {
        Totals {
            min: fold_lanes(self.min, |a, b| if b < a { b } else { a }),
            max: fold_lanes(self.max, |a, b| if b > a { b } else { a }),
            sum: sum_of_lanes(self.sum),
            squares: sum_of_lanes(self.squares),
            zeros: self.zeros.iter().sum(),
        }
    }
}

fn portable<const ZEROS: bool>(block: &[f64], zero_bits: u64) -> Totals {
    let mut lanes = DoubleLanes::NOTHING;
    let (chunks, tail) = block.as_chunks::<LANES>();
    for chunk in chunks {
        lanes.add::<ZEROS>(chunk, zero_bits);
    }
    lanes.add::<ZEROS>(tail, zero_bits);
    lanes.total()
}

/// Computes the totals of a block of float64.
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "functions compiled for an instruction set"))]
#[inline]
pub(super) fn totals<const ZEROS: bool>(isa: Isa, block: &[f64], zero_bits: u64) -> Totals {
    match isa {
        // SAFETY: the instruction set was detected before it was selected.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512::doubles::<ZEROS>(block, zero_bits) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::doubles::<ZEROS>(block, zero_bits) },
        _ => portable::<ZEROS>(block, zero_bits),
    }
}

impl Arithmetic for Double {
    type Element = f64;
    type Extreme = f64;

    #[inline]
    fn value(element: f64) -> f64 {
        element
    }

    fn fold(isa: Isa, block: &[f64], zero: &ZeroBound, into: &mut Partial<f64>) {
        let found = if zero.is_wanted {
            totals::<true>(isa, block, zero.double)
        } else {
            totals::<false>(isa, block, zero.double)
        };
        into.include_totals(&found);
        // Also true if the sum of finite elements overflows; then the counts are 0.
        if !found.sum.is_finite() {
            into.nans += block.iter().filter(|value| value.is_nan()).count() as u64;
            into.infs += block.iter().filter(|value| value.is_infinite()).count() as u64;
        }
    }

    fn scalar(extreme: f64) -> Scalar {
        Scalar::Float(extreme)
    }
}
