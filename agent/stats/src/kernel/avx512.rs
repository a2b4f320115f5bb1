//! The kernels on AVX-512.
//!
//! The 32 lanes of float32 need two vectors of values, four of float64 sums and four of squares. A block's tail is loaded
//! under a mask. Intel processors have two ports for 512-bit registers, so the cost is the number of instructions per
//! cache line that use one of them.
#![expect(unsafe_code, reason = "vector loads at raw addresses")]

use std::arch::asm;
use std::arch::x86_64::{
    __m512, __m512d, __m512i, _CMP_NLT_UQ, _MM_HINT_T1, _mm_add_pd, _mm_add_sd, _mm_cvtsd_f64, _mm_prefetch,
    _mm_unpackhi_pd, _mm256_add_pd, _mm256_castpd256_pd128, _mm256_extractf128_pd, _mm512_abs_pd, _mm512_add_pd,
    _mm512_and_si512, _mm512_castpd_si512, _mm512_castpd512_pd256, _mm512_castps_si512, _mm512_castps512_ps256,
    _mm512_cmp_pd_mask, _mm512_cvtps_pd, _mm512_extractf32x8_ps, _mm512_extractf64x4_pd, _mm512_fmadd_pd,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_cmplt_epu32_mask, _mm512_mask_cmplt_epu64_mask,
    _mm512_mask_max_pd, _mm512_mask_max_ps, _mm512_mask_min_pd, _mm512_mask_min_ps, _mm512_maskz_loadu_pd,
    _mm512_maskz_loadu_ps, _mm512_maskz_mul_pd, _mm512_max_ps, _mm512_min_ps, _mm512_reduce_max_pd,
    _mm512_reduce_max_ps, _mm512_reduce_min_pd, _mm512_reduce_min_ps, _mm512_set1_epi32, _mm512_set1_epi64,
    _mm512_set1_pd, _mm512_set1_ps, _mm512_setzero_pd, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::double::LEAST_SQUARED;
use super::{LANES, SINGLE_LANES};
use crate::partial::Totals;

const ALL: u16 = u16::MAX;
/// The number of float32 in one register.
pub(super) const SIXTEEN: usize = SINGLE_LANES / 2;
const CACHE_LINE: usize = 64;

/// The prefetch distance in bytes: two pages, so that address translation finishes in time too. The processor's own
/// prefetching stops at page ends and during a block's checksum. The target is the level-2 cache, which supports more
/// outstanding lines than level 1. Beyond the tensor's end the hint has no effect.
const AHEAD: usize = 8192;

/// Prefetches the cache line [`AHEAD`] bytes after `from`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
#[inline]
pub(super) fn ask_ahead<T>(from: *const T) {
    _mm_prefetch::<_MM_HINT_T1>(from.wrapping_byte_add(AHEAD).cast());
}

/// Adds lanes in the order of [`sum_of_lanes`](super::sum_of_lanes).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
#[inline]
fn sum_of_lanes([low, high]: [__m512d; 2]) -> f64 {
    let eight = _mm512_add_pd(low, high);
    let four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd::<1>(eight));
    let two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd::<1>(four));
    _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
}

/// Widens the first and the second eight values.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
#[inline]
fn widen(values: __m512) -> [__m512d; 2] {
    [_mm512_cvtps_pd(_mm512_castps512_ps256(values)), _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(values))]
}

/// Loads 32 float32 and widens them to four registers of float64.
///
/// A conversion from memory needs no extra instruction, whereas splitting a register occupies one of the two ports that
/// limit these kernels. Written in assembly, because the compiler would merge two loads into one and split the result.
///
/// # Safety
/// AVX-512 is available, 32 elements are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
#[inline]
pub(super) unsafe fn widen_at(from: *const f32) -> [[__m512d; 2]; 2] {
    let (a, b, c, d);
    // SAFETY: reads the 128 bytes that the caller guarantees.
    unsafe {
        asm!(
            "vcvtps2pd {a}, ymmword ptr [{from}]",
            "vcvtps2pd {b}, ymmword ptr [{from} + 32]",
            "vcvtps2pd {c}, ymmword ptr [{from} + 64]",
            "vcvtps2pd {d}, ymmword ptr [{from} + 96]",
            from = in(reg) from,
            a = out(zmm_reg) a,
            b = out(zmm_reg) b,
            c = out(zmm_reg) c,
            d = out(zmm_reg) d,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    [[a, b], [c, d]]
}

/// The float64 sums of the 32 lanes.
pub(super) struct Moments {
    sum: [[__m512d; 2]; 2],
    squares: [[__m512d; 2]; 2],
}

impl Moments {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
    #[inline]
    pub(super) fn nothing() -> Self {
        Self { sum: [[_mm512_setzero_pd(); 2]; 2], squares: [[_mm512_setzero_pd(); 2]; 2] }
    }

    /// Adds one element to each lane, in order.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
    #[inline]
    pub(super) fn add(&mut self, wide: [[__m512d; 2]; 2]) {
        for half in 0..2 {
            for (quarter, wide) in wide[half].into_iter().enumerate() {
                self.sum[half][quarter] = _mm512_add_pd(self.sum[half][quarter], wide);
                self.squares[half][quarter] = _mm512_fmadd_pd(wide, wide, self.squares[half][quarter]);
            }
        }
    }

    /// Adds elements in registers. Missing elements are 0, which changes no sum.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
    #[inline]
    pub(super) fn add_values(&mut self, [first, second]: [__m512; 2]) {
        self.add([widen(first), widen(second)]);
    }

    /// Returns the sum and the sum of squares.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
    #[inline]
    pub(super) fn total(self) -> (f64, f64) {
        let of = |[a, b]: [[__m512d; 2]; 2]| sum_of_lanes([_mm512_add_pd(a[0], b[0]), _mm512_add_pd(a[1], b[1])]);
        (of(self.sum), of(self.squares))
    }
}

/// Extremes and zeros of 16 of the 32 lanes.
#[derive(Clone, Copy)]
struct Extremes {
    min: __m512,
    max: __m512,
    zeros: u32,
}

impl Extremes {
    /// Adds the elements selected by the mask. A NaN does not change the extremes: if one operand is NaN, the result is
    /// the second.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
    #[inline]
    fn add<const ZEROS: bool>(&mut self, values: __m512, mask: u16, bound: __m512i) {
        self.min = _mm512_mask_min_ps(self.min, mask, values, self.min);
        self.max = _mm512_mask_max_ps(self.max, mask, values, self.max);
        if ZEROS {
            let magnitudes = _mm512_and_si512(_mm512_castps_si512(values), _mm512_set1_epi32(i32::MAX));
            self.zeros += _mm512_mask_cmplt_epu32_mask(mask, magnitudes, bound).count_ones();
        }
    }
}

/// Computes the totals of a block of float32.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
pub(super) fn singles<const ZEROS: bool>(block: &[f32], zero_bits: u32) -> Totals {
    let mut moments = Moments::nothing();
    let nothing = Extremes { min: _mm512_set1_ps(f32::INFINITY), max: _mm512_set1_ps(f32::NEG_INFINITY), zeros: 0 };
    let mut halves = [nothing; 2];
    let bound = _mm512_set1_epi32(zero_bits.cast_signed());
    let (chunks, tail) = block.as_chunks::<SINGLE_LANES>();
    for chunk in chunks {
        let from = chunk.as_ptr();
        ask_ahead(from);
        ask_ahead(from.wrapping_byte_add(CACHE_LINE));
        // SAFETY: a chunk is 32 elements; this function runs on AVX-512 only.
        moments.add(unsafe { widen_at(from) });
        for (at, half) in halves.iter_mut().enumerate() {
            // SAFETY: as above.
            half.add::<ZEROS>(unsafe { _mm512_loadu_ps(from.add(at * SIXTEEN)) }, ALL, bound);
        }
    }
    if !tail.is_empty() {
        let mask = u32::MAX >> (SINGLE_LANES - tail.len());
        let masks = [mask as u16, (mask >> SIXTEEN) as u16];
        // SAFETY: the masks select the elements of the tail; nothing else is read.
        let load = |at| unsafe { _mm512_maskz_loadu_ps(masks[at], tail.as_ptr().wrapping_add(at * SIXTEEN)) };
        let values = [load(0), load(1)];
        moments.add_values(values);
        for (at, half) in halves.iter_mut().enumerate() {
            half.add::<ZEROS>(values[at], masks[at], bound);
        }
    }
    let [a, b] = halves;
    let (sum, squares) = moments.total();
    Totals {
        min: f64::from(_mm512_reduce_min_ps(_mm512_min_ps(a.min, b.min))),
        max: f64::from(_mm512_reduce_max_ps(_mm512_max_ps(a.max, b.max))),
        sum,
        squares,
        zeros: u64::from(a.zeros + b.zeros),
    }
}

#[derive(Clone, Copy)]
struct DoubleLanes {
    sum: [__m512d; 2],
    squares: [__m512d; 2],
    min: [__m512d; 2],
    max: [__m512d; 2],
    zeros: u32,
}

impl DoubleLanes {
    /// Adds to one half of the lanes, like [`Extremes::add`] and [`Moments::add`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
    #[inline]
    fn add<const ZEROS: bool>(&mut self, half: usize, values: __m512d, mask: u8, bound: __m512i) {
        self.sum[half] = _mm512_add_pd(self.sum[half], values);
        // The mask avoids subnormal products, which take 150 cycles on Intel processors.
        let counts = _mm512_cmp_pd_mask::<_CMP_NLT_UQ>(_mm512_abs_pd(values), _mm512_set1_pd(LEAST_SQUARED));
        self.squares[half] = _mm512_add_pd(self.squares[half], _mm512_maskz_mul_pd(counts, values, values));
        self.min[half] = _mm512_mask_min_pd(self.min[half], mask, values, self.min[half]);
        self.max[half] = _mm512_mask_max_pd(self.max[half], mask, values, self.max[half]);
        if ZEROS {
            let magnitudes = _mm512_and_si512(_mm512_castpd_si512(values), _mm512_set1_epi64(i64::MAX));
            self.zeros += _mm512_mask_cmplt_epu64_mask(mask, magnitudes, bound).count_ones();
        }
    }
}

/// Computes the totals of a block of float64.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
pub(super) fn doubles<const ZEROS: bool>(block: &[f64], zero_bits: u64) -> Totals {
    let mut lanes = DoubleLanes {
        sum: [_mm512_setzero_pd(); 2],
        squares: [_mm512_setzero_pd(); 2],
        min: [_mm512_set1_pd(f64::INFINITY); 2],
        max: [_mm512_set1_pd(f64::NEG_INFINITY); 2],
        zeros: 0,
    };
    let bound = _mm512_set1_epi64(zero_bits.cast_signed());
    let (chunks, tail) = block.as_chunks::<LANES>();
    let masks = |mask: u16| [(0, mask as u8), (1, (mask >> 8) as u8)];
    for chunk in chunks {
        for (half, mask) in masks(ALL) {
            ask_ahead(chunk.as_ptr().wrapping_add(half * 8));
            // SAFETY: a chunk is 16 elements.
            let values = unsafe { _mm512_maskz_loadu_pd(mask, chunk.as_ptr().add(half * 8)) };
            lanes.add::<ZEROS>(half, values, mask, bound);
        }
    }
    if !tail.is_empty() {
        for (half, mask) in masks(ALL >> (LANES - tail.len())) {
            // SAFETY: the masks select the elements of the tail; nothing else is read.
            let values = unsafe { _mm512_maskz_loadu_pd(mask, tail.as_ptr().wrapping_add(half * 8)) };
            lanes.add::<ZEROS>(half, values, mask, bound);
        }
    }
    Totals {
        min: _mm512_reduce_min_pd(lanes.min[0]).min(_mm512_reduce_min_pd(lanes.min[1])),
        max: _mm512_reduce_max_pd(lanes.max[0]).max(_mm512_reduce_max_pd(lanes.max[1])),
        sum: sum_of_lanes(lanes.sum),
        squares: sum_of_lanes(lanes.squares),
        zeros: u64::from(lanes.zeros),
    }
}

/// Computes the XOR of all 64-bit words of 256-byte groups, lane by lane. Four registers keep enough loads in flight.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
pub(super) fn xor_of_groups(groups: &[[u8; 256]]) -> [u64; 8] {
    let mut lanes = [_mm512_setzero_si512(); 4];
    for group in groups {
        for (at, lane) in lanes.iter_mut().enumerate() {
            // SAFETY: a group is four registers wide.
            *lane = _mm512_xor_si512(*lane, unsafe { _mm512_loadu_si512(group.as_ptr().add(at * 64).cast()) });
        }
    }
    let folded = _mm512_xor_si512(_mm512_xor_si512(lanes[0], lanes[1]), _mm512_xor_si512(lanes[2], lanes[3]));
    let mut words = [0; 8];
    // SAFETY: eight words are one register.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), folded) };
    words
}
