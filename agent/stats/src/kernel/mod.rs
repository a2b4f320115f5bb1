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

/// The number of interleaved sums of a block of float64; the same for every instruction set. Memory is the bottleneck.
const LANES: usize = 16;
/// The number of interleaved sums for float32 and types that widen to it. With 16, dependent additions would be slower
/// than memory, above all for the 16-bit floats.
const SINGLE_LANES: usize = 32;

/// The bound below which a magnitude counts as zero, for each arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZeroBound {
    /// Whether zeros are counted.
    pub(crate) is_wanted: bool,
    /// Bits of the bound as float32: the bits of non-negative floats are ordered like their values, NaN last.
    single: u32,
    /// Bits of the bound as float64.
    double: u64,
    /// The bound for integers: |x| < eps is equivalent to |x| < ceil(eps).
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

/// The arithmetic that measures the elements of one dtype.
pub(crate) trait Arithmetic {
    /// An element in memory.
    type Element: Plain;
    /// The type of its extremes.
    type Extreme: Extreme;

    /// Returns the value of an element: its magnitude if complex, 0 or 1 if bool.
    fn value(element: Self::Element) -> f64;

    /// Adds the results of a block of at least one element.
    fn fold(isa: Isa, block: &[Self::Element], zero: &ZeroBound, into: &mut Partial<Self::Extreme>);

    /// Converts an extreme to the type that readings use.
    fn scalar(extreme: Self::Extreme) -> Scalar;
}

/// Returns the sum of ((x - centre) / divisor)² over a block. For the rare second pass: plain code for every dtype.
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

/// Adds lanes in a fixed order, so that every instruction set returns the same bits.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must take on the instruction set of its caller")]
fn sum_of_lanes<const N: usize>(lanes: [f64; N]) -> f64 {
    fold_lanes(lanes, |a, b| a + b)
}

/// Folds 16 lanes pairwise: 0 with 8, 1 with 9 ..., then 0 with 4 ..., down to one.
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
