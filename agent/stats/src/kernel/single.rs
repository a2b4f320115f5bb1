//! The arithmetic of float32, and of the 16-bit floats that widen to it without loss.
//!
//! A square of a float32 is exact in float64 (24 + 24 bits of 53), so a fused multiply-add gives the same bits as
//! multiply, then add. Every instruction set uses 32 lanes in the same order, so all agree bit for bit.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m512};
use std::marker::PhantomData;

use trainmon_core::Scalar;

use super::{Arithmetic, SINGLE_LANES, ZeroBound, fold_lanes, sum_of_lanes};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512, avx512_half};
use crate::isa::Isa;
use crate::layout::Plain;
use crate::partial::{Partial, Totals};

const MAGNITUDE: u32 = 0x7fff_ffff;
const INFINITY: u32 = 0x7f80_0000;

/// A bfloat16.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Bf16(u16);

/// An IEEE half-precision float.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct F16(u16);

#[expect(unsafe_code, reason = "16 bits without padding")]
// SAFETY: every pattern of 16 bits is a value.
unsafe impl Plain for Bf16 {}
#[expect(unsafe_code, reason = "16 bits without padding")]
// SAFETY: every pattern of 16 bits is a value.
unsafe impl Plain for F16 {}

/// A float that widens to float32 exactly.
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "vector loads from raw addresses"))]
pub(crate) trait Single: Plain {
    /// Returns the same number as float32.
    fn widen(self) -> f32;

    /// Returns the lane of the element at this position in a chunk of [`SINGLE_LANES`]. The order is the cheapest for
    /// vector instructions: they split a register into 16-bit halves without a shuffle.
    #[inline]
    fn lane(place: usize) -> usize {
        place
    }

    /// Computes the totals of a block.
    ///
    /// # Safety
    /// AVX-512 is available.
    #[cfg(target_arch = "x86_64")]
    unsafe fn totals512<const ZEROS: bool>(block: &[Self], zero_bits: u32) -> Totals;

    /// Loads and widens the eight elements of a chunk of 32 whose lanes start at `half * 16 + quarter * 8`.
    ///
    /// # Safety
    /// AVX2 and F16C are available, 32 elements are readable, `half` and `quarter` are 0 or 1.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load256(chunk: *const Self, half: usize, quarter: usize) -> __m256;
}

/// A float of 16 bits.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "vector loads from raw addresses")]
pub(super) trait Half: Single {
    /// Returns the element with this bit pattern.
    fn from_bits(bits: u16) -> Self;

    /// Returns the least unsigned bit pattern at or above an unsigned float32, so that both bounds count the same elements.
    fn at_or_above(single_bits: u32) -> u16;

    /// Loads and widens up to 32 elements, lane by lane; 0 where the mask (of positions) has no bit.
    ///
    /// # Safety
    /// AVX-512 is available, the elements selected by the mask are readable.
    unsafe fn load512(chunk: *const Self, mask: u32) -> [__m512; 2];
}

macro_rules! half {
    ($name:ident, $load:ident, $at_or_above:expr) => {
        #[cfg(target_arch = "x86_64")]
        #[expect(unsafe_code, reason = "vector loads from raw addresses")]
        impl Half for $name {
            #[inline]
            fn from_bits(bits: u16) -> Self {
                Self(bits)
            }

            #[inline]
            fn at_or_above(single_bits: u32) -> u16 {
                let at_or_above: fn(u32) -> u16 = $at_or_above;
                at_or_above(single_bits)
            }

            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
            #[inline]
            unsafe fn load512(chunk: *const Self, mask: u32) -> [__m512; 2] {
                // SAFETY: guaranteed by the caller.
                unsafe { avx512_half::$load(chunk.cast(), mask) }
            }
        }
    };
}
half!(Bf16, load_bf16, |bits| bits.div_ceil(1 << 16) as u16);
half!(F16, load_f16, f16_at_or_above);

/// Returns the least unsigned half that is not below an unsigned float32; infinity for larger ones.
#[cfg(target_arch = "x86_64")]
fn f16_at_or_above(single_bits: u32) -> u16 {
    const LEAST_NORMAL: u32 = (127 - 14) << 23;
    const REBIAS: u32 = (127 - 15) << 10;
    if single_bits < LEAST_NORMAL {
        return (f32::from_bits(single_bits) * 2f32.powi(24)).ceil() as u16;
    }
    (single_bits.div_ceil(1 << 13) - REBIAS).min(INFINITY_OF_F16) as u16
}

#[cfg(target_arch = "x86_64")]
const INFINITY_OF_F16: u32 = 0x7c00;

macro_rules! vector_code {
    ($load:ident, |$block:ident, $zero_bits:ident| $totals:expr) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
        #[inline]
        unsafe fn totals512<const ZEROS: bool>($block: &[Self], $zero_bits: u32) -> Totals {
            $totals
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline]
        unsafe fn load256(chunk: *const Self, half: usize, quarter: usize) -> __m256 {
            // SAFETY: guaranteed by the caller.
            unsafe { avx2::$load(chunk.cast(), half, quarter) }
        }
    };
}

#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "vector loads from raw addresses"))]
impl Single for f32 {
    #[inline]
    fn widen(self) -> f32 {
        self
    }

    vector_code!(load_f32, |block, zero_bits| avx512::singles::<ZEROS>(block, zero_bits));
}

#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "vector loads from raw addresses"))]
impl Single for Bf16 {
    #[inline]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Each 32-bit word of a register holds two elements: even positions are the first half of the lanes, odd the second.
    #[inline]
    fn lane(place: usize) -> usize {
        (place % 2) * (SINGLE_LANES / 2) + place / 2
    }

    vector_code!(load_bf16, |block, zero_bits| avx512_half::halves::<Self, ZEROS>(block, Self::at_or_above(zero_bits)));
}

#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "vector loads from raw addresses"))]
impl Single for F16 {
    /// Branch-free, so that it vectorises: exponents are re-biased as integers. A subnormal half becomes a normal float32
    /// by adding an implied leading bit and subtracting it again.
    #[inline]
    fn widen(self) -> f32 {
        const EXPONENT: u32 = 0x7c00 << 13;
        const REBIAS: u32 = (127 - 15) << 23;
        const IMPLIED: u32 = (127 - 14) << 23;
        let shifted = u32::from(self.0 & 0x7fff) << 13;
        let exponent = shifted & EXPONENT;
        let normal = shifted + REBIAS;
        let special = normal + REBIAS;
        let subnormal = (f32::from_bits(shifted + IMPLIED) - f32::from_bits(IMPLIED)).to_bits();
        let finite = if exponent == 0 { subnormal } else { normal };
        let magnitude = if exponent == EXPONENT { special } else { finite };
        f32::from_bits(magnitude | (u32::from(self.0 & 0x8000) << 16))
    }

    vector_code!(load_f16, |block, zero_bits| avx512_half::halves::<Self, ZEROS>(block, Self::at_or_above(zero_bits)));
}

/// The running results of 32 interleaved sequences.
pub(super) struct SingleLanes {
    pub(super) sum: [f64; SINGLE_LANES],
    pub(super) squares: [f64; SINGLE_LANES],
    pub(super) min: [f32; SINGLE_LANES],
    pub(super) max: [f32; SINGLE_LANES],
    pub(super) zeros: [u32; SINGLE_LANES],
}

impl SingleLanes {
    pub(super) const NOTHING: Self = Self {
        sum: [0.0; SINGLE_LANES],
        squares: [0.0; SINGLE_LANES],
        min: [f32::INFINITY; SINGLE_LANES],
        max: [f32::NEG_INFINITY; SINGLE_LANES],
        zeros: [0; SINGLE_LANES],
    };

    /// Adds up to 32 elements, each to its lane. A NaN does not change the extremes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "must take on the instruction set of its caller")]
    pub(super) fn add<S: Single, const ZEROS: bool>(&mut self, elements: &[S], zero_bits: u32) {
        for (place, element) in elements.iter().enumerate() {
            let lane = S::lane(place);
            let value = element.widen();
            let wide = f64::from(value);
            self.sum[lane] += wide;
            self.squares[lane] += wide * wide;
            self.min[lane] = if value < self.min[lane] { value } else { self.min[lane] };
            self.max[lane] = if value > self.max[lane] { value } else { self.max[lane] };
            if ZEROS {
                self.zeros[lane] += u32::from(value.to_bits() & MAGNITUDE < zero_bits);
            }
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "must take on the instruction set of its caller")]
    pub(super) fn total(&self) -> Totals {
        Totals {
            min: f64::from(fold_lanes(self.min, |a, b| if b < a { b } else { a })),
            max: f64::from(fold_lanes(self.max, |a, b| if b > a { b } else { a })),
            sum: sum_of_lanes(self.sum),
            squares: sum_of_lanes(self.squares),
            zeros: self.zeros.iter().map(|&zeros| u64::from(zeros)).sum(),
        }
    }
}

fn portable<S: Single, const ZEROS: bool>(block: &[S], zero_bits: u32) -> Totals {
    let mut lanes = SingleLanes::NOTHING;
    let (chunks, tail) = block.as_chunks::<SINGLE_LANES>();
    for chunk in chunks {
        lanes.add::<S, ZEROS>(chunk, zero_bits);
    }
    lanes.add::<S, ZEROS>(tail, zero_bits);
    lanes.total()
}

#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "functions compiled for an instruction set"))]
#[inline]
fn totals<S: Single, const ZEROS: bool>(isa: Isa, block: &[S], zero_bits: u32) -> Totals {
    match isa {
        // SAFETY: the instruction set was detected before it was selected.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { S::totals512::<ZEROS>(block, zero_bits) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::singles::<S, ZEROS>(block, zero_bits) },
        _ => portable::<S, ZEROS>(block, zero_bits),
    }
}

/// The arithmetic of float32 and of types that widen to it.
pub(crate) struct Singles<S>(PhantomData<S>);

impl<S: Single> Arithmetic for Singles<S> {
    type Element = S;
    type Extreme = f64;

    #[inline]
    fn value(element: S) -> f64 {
        f64::from(element.widen())
    }

    #[inline]
    fn fold(isa: Isa, block: &[S], zero: &ZeroBound, into: &mut Partial<f64>) {
        let found = if zero.is_wanted {
            totals::<S, true>(isa, block, zero.single)
        } else {
            totals::<S, false>(isa, block, zero.single)
        };
        into.include_totals(&found);
        // The sum of a block of finite float32 cannot overflow float64: it is finite unless an element is not.
        if !found.sum.is_finite() {
            let (nans, infs) = isa.run(|| count_nonfinite(block));
            into.nans += u64::from(nans);
            into.infs += u64::from(infs);
        }
    }

    fn scalar(extreme: f64) -> Scalar {
        Scalar::Float(extreme)
    }
}

/// Counts the NaN and infinite elements of a block that has some and is still in the cache.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must take on the instruction set of its caller")]
fn count_nonfinite<S: Single>(block: &[S]) -> (u32, u32) {
    block.iter().fold((0, 0), |(nans, infs), element| {
        let magnitude = element.widen().to_bits() & MAGNITUDE;
        (nans + u32::from(magnitude > INFINITY), infs + u32::from(magnitude == INFINITY))
    })
}
