//! The arithmetic of each dtype over one block of elements.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_half;
mod complex;
mod double;
mod integer;
mod narrow;
mod single;
mod xor;

use trainmon_core::Scalar;

pub(crate) use complex::{Complex64, Complex128};
pub(crate) use double::Double;
pub(crate) use integer::{Bools, Integers};
pub(crate) use narrow::{E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, Narrow};
pub(crate) use single::{Bf16, F16, Singles};
pub(crate) use xor::xor_of_words;

use crate::isa::Isa;
use crate::layout::Plain;
use crate::partial::{Extreme, Partial};

/// Interleaved sequences a block of float64 is summed in; the same for every instruction set. Memory bounds it.
const LANES: usize = 16;
/// As above, for float32 and what widens to it: with 16 the additions wait for each other before memory does, most of
/// all for the 16-bit floats.
const SINGLE_LANES: usize = 32;

/// The bound below which a magnitude counts as zero, in each arithmetic it may be compared in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZeroBound {
    /// Whether zeros are counted at all.
    pub(crate) is_wanted: bool,
    /// Bits of the bound as float32: of non-negative floats, order of bits is order of values, NaN last.
    single: u32,
    /// Bits of the bound as float64.
    double: u64,
    /// For integers |x| < eps is |x| < ceil(eps).
    integer: u64,
}

impl ZeroBound {
    pub(crate) fn new(eps: f64, is_wanted: bool) -> Self {
        let positive = if is_wanted && eps > 0.0 { eps } else { 0.0 };
        Self {
            is_wanted,
            single: (positive as f32).to_bits(),
            double: positive.to_bits(),
            integer: if positive > 0.0 { positive.ceil() as u64 } else { 0 },
        }
    }
}

/// How the elements of one dtype are measured.
pub(crate) trait Arithmetic {
    /// An element in memory.
    type Element: Plain;
    /// What its extremes are kept in.
    type Extreme: Extreme;

    /// The number an element stands for: its magnitude if complex, 0 or 1 if bool.
    fn value(element: Self::Element) -> f64;

    /// Adds the findings of a block of at least one element.
    fn fold(isa: Isa, block: &[Self::Element], zero: &ZeroBound, into: &mut Partial<Self::Extreme>);

    /// An extreme as readings carry it.
    fn scalar(extreme: Self::Extreme) -> Scalar;
}

/// The sum of ((x - centre) / divisor)² over a block. For the rare second pass: plain code for every dtype.
pub(crate) fn spread<A: Arithmetic>(block: &[A::Element], centre: f64, divisor: f64) -> f64 {
    let mut lanes = [0.0f64; 8];
    for chunk in block.chunks(8) {
        for (lane, &element) in lanes.iter_mut().zip(chunk) {
            let distance = (A::value(element) - centre) / divisor;
            *lane += distance * distance;
        }
    }
    lanes.iter().sum()
}

/// Adds lanes in one fixed order, so that every instruction set gives the same bits.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must take on the instruction set of its caller")]
fn sum_of_lanes<const N: usize>(lanes: [f64; N]) -> f64 {
    fold_lanes(lanes, |a, b| a + b)
}

/// Of 16: lane 0 with lane 8, 1 with 9 ..., then 0 with 4 ..., to the last.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must take on the instruction set of its caller")]
fn fold_lanes<T: Copy, const N: usize>(mut lanes: [T; N], combine: impl Fn(T, T) -> T) -> T {
    let mut width = N / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = combine(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}
