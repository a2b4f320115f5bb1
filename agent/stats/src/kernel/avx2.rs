//! The kernels on AVX2.
//!
//! 16 lanes of float32 need two vectors of values, four of float64 sums and four of squares. With temporaries, these fill
//! all 16 registers, so the 32 lanes take two passes over a block in the cache. The portable code handles a block's tail.
#![expect(unsafe_code, reason = "vector loads and stores at raw addresses")]

use std::arch::x86_64::{
    __m256, __m256d, _CMP_NLT_UQ, _mm_loadu_si128, _mm256_add_pd, _mm256_and_pd, _mm256_and_si256, _mm256_castpd_si256,
    _mm256_castps_si256, _mm256_castps256_ps128, _mm256_castsi256_pd, _mm256_castsi256_ps, _mm256_cmp_pd,
    _mm256_cmpgt_epi32, _mm256_cmpgt_epi64, _mm256_cvtph_ps, _mm256_cvtps_pd, _mm256_extractf128_ps, _mm256_fmadd_pd,
    _mm256_loadu_pd, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_max_pd, _mm256_max_ps, _mm256_min_pd, _mm256_min_ps,
    _mm256_mul_pd, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_set1_pd, _mm256_set1_ps, _mm256_setzero_pd,
    _mm256_setzero_si256, _mm256_slli_epi32, _mm256_storeu_pd, _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi32,
    _mm256_sub_epi64,
};

use super::double::{DoubleLanes, LEAST_SQUARED};
use super::single::{Single, SingleLanes};
use super::{LANES, SINGLE_LANES};
use crate::partial::Totals;

/// # Safety
/// AVX2 is available, 32 elements are readable, `half` and `quarter` are 0 or 1.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_f32(chunk: *const f32, half: usize, quarter: usize) -> __m256 {
    // SAFETY: guaranteed by the caller.
    unsafe { _mm256_loadu_ps(chunk.add(half * SIXTEEN + quarter * EIGHT)) }
}

/// Loads the even or the odd ones of 16 consecutive elements.
///
/// # Safety
/// AVX2 is available, 32 elements are readable, `half` and `quarter` are 0 or 1.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_bf16(chunk: *const u16, half: usize, quarter: usize) -> __m256 {
    // SAFETY: guaranteed by the caller.
    let pairs = unsafe { _mm256_loadu_si256(chunk.add(quarter * SIXTEEN).cast()) };
    let odd = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
    _mm256_castsi256_ps(if half == 0 { _mm256_slli_epi32::<16>(pairs) } else { _mm256_and_si256(pairs, odd) })
}

/// # Safety
/// AVX2 and F16C are available, 32 elements are readable, `half` and `quarter` are 0 or 1.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_f16(chunk: *const u16, half: usize, quarter: usize) -> __m256 {
    // SAFETY: guaranteed by the caller.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(chunk.add(half * SIXTEEN + quarter * EIGHT).cast()) })
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn widen(values: __m256) -> [__m256d; 2] {
    [_mm256_cvtps_pd(_mm256_castps256_ps128(values)), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(values))]
}

/// Computes the totals of a block of float32 or of a type that widens to it.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn singles<S: Single, const ZEROS: bool>(block: &[S], zero_bits: u32) -> Totals {
    let (chunks, tail) = block.as_chunks::<SINGLE_LANES>();
    let mut lanes = SingleLanes::NOTHING;
    for half in 0..2 {
        sixteen_lanes::<S, ZEROS>(chunks, half, zero_bits, &mut lanes);
    }
    lanes.add::<S, ZEROS>(tail, zero_bits);
    lanes.total()
}

/// The lanes that fit the registers: half of [`SINGLE_LANES`].
const SIXTEEN: usize = SINGLE_LANES / 2;
/// The number of float32 in one register.
const EIGHT: usize = 8;

/// Computes one half of the lanes, each from its elements in every chunk.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn sixteen_lanes<S: Single, const ZEROS: bool>(
    chunks: &[[S; SINGLE_LANES]],
    half: usize,
    zero_bits: u32,
    lanes: &mut SingleLanes,
) {
    assert!(half < 2);
    let mut sum = [_mm256_setzero_pd(); 4];
    let mut squares = [_mm256_setzero_pd(); 4];
    let mut min = [_mm256_set1_ps(f32::INFINITY); 2];
    let mut max = [_mm256_set1_ps(f32::NEG_INFINITY); 2];
    let mut zeros = [_mm256_setzero_si256(); 2];
    let magnitude_bits = _mm256_set1_epi32(i32::MAX);
    // Magnitudes and the bound have no sign bit, so the signed comparison is correct.
    let bound = _mm256_set1_epi32(zero_bits.cast_signed());

    for chunk in chunks {
        for quarter in 0..2 {
            // SAFETY: a chunk is 32 elements; this function runs on AVX2 only.
            let values = unsafe { S::load256(chunk.as_ptr(), half, quarter) };
            for (part, wide) in widen(values).into_iter().enumerate() {
                let at = quarter * 2 + part;
                sum[at] = _mm256_add_pd(sum[at], wide);
                squares[at] = _mm256_fmadd_pd(wide, wide, squares[at]);
            }
            // If one operand is NaN, the result is the second.
            min[quarter] = _mm256_min_ps(values, min[quarter]);
            max[quarter] = _mm256_max_ps(values, max[quarter]);
            if ZEROS {
                let magnitudes = _mm256_and_si256(_mm256_castps_si256(values), magnitude_bits);
                zeros[quarter] = _mm256_sub_epi32(zeros[quarter], _mm256_cmpgt_epi32(bound, magnitudes));
            }
        }
    }

    let first = half * SIXTEEN;
    // SAFETY: each array is 32 lanes wide, and 16 follow `first`.
    unsafe {
        for at in 0..4 {
            _mm256_storeu_pd(lanes.sum.as_mut_ptr().add(first + at * 4), sum[at]);
            _mm256_storeu_pd(lanes.squares.as_mut_ptr().add(first + at * 4), squares[at]);
        }
        for quarter in 0..2 {
            _mm256_storeu_ps(lanes.min.as_mut_ptr().add(first + quarter * EIGHT), min[quarter]);
            _mm256_storeu_ps(lanes.max.as_mut_ptr().add(first + quarter * EIGHT), max[quarter]);
            _mm256_storeu_si256(lanes.zeros.as_mut_ptr().add(first + quarter * EIGHT).cast(), zeros[quarter]);
        }
    }
}

/// Computes the totals of a block of float64. Memory is the bottleneck, so accumulators beyond the 16 registers cost nothing.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn doubles<const ZEROS: bool>(block: &[f64], zero_bits: u64) -> Totals {
    const VECTORS: usize = LANES / 4;
    let mut sum = [_mm256_setzero_pd(); VECTORS];
    let mut squares = [_mm256_setzero_pd(); VECTORS];
    let mut min = [_mm256_set1_pd(f64::INFINITY); VECTORS];
    let mut max = [_mm256_set1_pd(f64::NEG_INFINITY); VECTORS];
    let mut zeros = [_mm256_setzero_si256(); VECTORS];
    let magnitude_bits = _mm256_set1_epi64x(i64::MAX);
    let least_squared = _mm256_set1_pd(LEAST_SQUARED);
    // As in `singles`: no sign bits.
    let bound = _mm256_set1_epi64x(zero_bits.cast_signed());

    let (chunks, tail) = block.as_chunks::<LANES>();
    for chunk in chunks {
        for vector in 0..VECTORS {
            // SAFETY: a chunk is 16 elements.
            let values = unsafe { _mm256_loadu_pd(chunk.as_ptr().add(vector * 4)) };
            sum[vector] = _mm256_add_pd(sum[vector], values);
            let magnitudes = _mm256_and_pd(values, _mm256_castsi256_pd(magnitude_bits));
            // `not less than` is also true for NaN.
            let root = _mm256_and_pd(values, _mm256_cmp_pd::<_CMP_NLT_UQ>(magnitudes, least_squared));
            squares[vector] = _mm256_add_pd(squares[vector], _mm256_mul_pd(root, root));
            min[vector] = _mm256_min_pd(values, min[vector]);
            max[vector] = _mm256_max_pd(values, max[vector]);
            if ZEROS {
                let is_zero = _mm256_cmpgt_epi64(bound, _mm256_castpd_si256(magnitudes));
                zeros[vector] = _mm256_sub_epi64(zeros[vector], is_zero);
            }
        }
    }

    let mut lanes = DoubleLanes::NOTHING;
    // SAFETY: each array is 16 lanes wide.
    unsafe {
        for vector in 0..VECTORS {
            _mm256_storeu_pd(lanes.sum.as_mut_ptr().add(vector * 4), sum[vector]);
            _mm256_storeu_pd(lanes.squares.as_mut_ptr().add(vector * 4), squares[vector]);
            _mm256_storeu_pd(lanes.min.as_mut_ptr().add(vector * 4), min[vector]);
            _mm256_storeu_pd(lanes.max.as_mut_ptr().add(vector * 4), max[vector]);
            _mm256_storeu_si256(lanes.zeros.as_mut_ptr().add(vector * 4).cast(), zeros[vector]);
        }
    }
    lanes.add::<ZEROS>(tail, zero_bits);
    lanes.total()
}
