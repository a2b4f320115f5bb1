//! float64.
//!
//! Squares are rounded here, so no fused multiply-add is used: every instruction set gives the same bits.

use trainmon_core::Scalar;

use super::{Arithmetic, ZeroBound, sum_of_lanes};
use crate::isa::Isa;
use crate::partial::Partial;

const LANES: usize = 16;
const MAGNITUDE: u64 = 0x7fff_ffff_ffff_ffff;

/// The arithmetic of float64.
pub(crate) struct Double;

struct Lanes {
    sum: [f64; LANES],
    squares: [f64; LANES],
    min: [f64; LANES],
    max: [f64; LANES],
    zeros: [u64; LANES],
}

impl Lanes {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "must take on the instruction set of its caller")]
    fn add<const ZEROS: bool>(&mut self, elements: &[f64], zero_bits: u64) {
        for (lane, &value) in elements.iter().enumerate() {
            self.sum[lane] += value;
            self.squares[lane] += value * value;
            self.min[lane] = if value < self.min[lane] { value } else { self.min[lane] };
            self.max[lane] = if value > self.max[lane] { value } else { self.max[lane] };
            if ZEROS {
                self.zeros[lane] += u64::from(value.to_bits() & MAGNITUDE < zero_bits);
            }
        }
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "must take on the instruction set of its caller")]
fn totals<const ZEROS: bool>(block: &[f64], zero_bits: u64) -> Lanes {
    let mut lanes = Lanes {
        sum: [0.0; LANES],
        squares: [0.0; LANES],
        min: [f64::INFINITY; LANES],
        max: [f64::NEG_INFINITY; LANES],
        zeros: [0; LANES],
    };
    let (chunks, tail) = block.as_chunks::<LANES>();
    for chunk in chunks {
        lanes.add::<ZEROS>(chunk, zero_bits);
    }
    lanes.add::<ZEROS>(tail, zero_bits);
    lanes
}

impl Arithmetic for Double {
    type Element = f64;
    type Extreme = f64;

    #[inline]
    fn value(element: f64) -> f64 {
        element
    }

    fn fold(isa: Isa, block: &[f64], zero: &ZeroBound, into: &mut Partial<f64>) {
        let lanes = if zero.is_wanted {
            isa.run(|| totals::<true>(block, zero.double))
        } else {
            isa.run(|| totals::<false>(block, zero.double))
        };
        for lane in 0..LANES {
            into.include(lanes.min[lane], lanes.max[lane]);
        }
        let sum = sum_of_lanes(&lanes.sum);
        into.sum.add(sum);
        into.squares.add(sum_of_lanes(&lanes.squares));
        into.zeros += lanes.zeros.iter().sum::<u64>();
        // Also true when finite elements add up beyond float64; then none is counted.
        if !sum.is_finite() {
            into.nans += block.iter().filter(|value| value.is_nan()).count() as u64;
            into.infs += block.iter().filter(|value| value.is_infinite()).count() as u64;
        }
    }

    fn scalar(extreme: f64) -> Scalar {
        Scalar::Float(extreme)
    }
}
