//! The 16-lane kernel of `single` on AVX-512: one vector of float32, two of float64 sums, two of squares.
#![expect(unsafe_code, reason = "vector loads and stores at raw addresses")]

use std::arch::x86_64::{
    __m256i, __m512, _mm256_loadu_si256, _mm512_add_pd, _mm512_and_si512, _mm512_castps_si512, _mm512_castps512_ps256,
    _mm512_castsi512_ps, _mm512_cmplt_epu32_mask, _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_pd,
    _mm512_extractf32x8_ps, _mm512_fmadd_pd, _mm512_loadu_ps, _mm512_mask_add_epi32, _mm512_max_ps, _mm512_min_ps,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_pd, _mm512_setzero_si512, _mm512_slli_epi32, _mm512_store_pd,
    _mm512_store_ps, _mm512_store_si512,
};

use super::single::{BlockTotals, LANES, Lanes, Single};

/// # Safety
/// AVX-512 is there, 16 elements are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_f32(from: *const f32) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_loadu_ps(from) }
}

/// # Safety
/// AVX-512 is there, 16 elements are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_bf16(from: *const __m256i) -> __m512 {
    // SAFETY: the caller's.
    let halves = unsafe { _mm256_loadu_si256(from) };
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
}

/// # Safety
/// AVX-512 is there, 16 elements are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_f16(from: *const __m256i) -> __m512 {
    // SAFETY: the caller's.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(from) })
}

/// What a block gives.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) fn totals<S: Single, const ZEROS: bool>(block: &[S], zero_bits: u32) -> BlockTotals {
    let (mut sum_low, mut sum_high) = (_mm512_setzero_pd(), _mm512_setzero_pd());
    let (mut squares_low, mut squares_high) = (_mm512_setzero_pd(), _mm512_setzero_pd());
    let mut min = _mm512_set1_ps(f32::INFINITY);
    let mut max = _mm512_set1_ps(f32::NEG_INFINITY);
    let mut zeros = _mm512_setzero_si512();
    let magnitude_bits = _mm512_set1_epi32(0x7fff_ffff);
    let bound = _mm512_set1_epi32(zero_bits.cast_signed());
    let one = _mm512_set1_epi32(1);

    let (chunks, tail) = block.as_chunks::<LANES>();
    for chunk in chunks {
        // SAFETY: a chunk is 16 elements; this function runs on AVX-512 only.
        let values = unsafe { S::load512(chunk.as_ptr()) };
        let low = _mm512_cvtps_pd(_mm512_castps512_ps256(values));
        let high = _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(values));
        sum_low = _mm512_add_pd(sum_low, low);
        sum_high = _mm512_add_pd(sum_high, high);
        squares_low = _mm512_fmadd_pd(low, low, squares_low);
        squares_high = _mm512_fmadd_pd(high, high, squares_high);
        // The second operand is the result when one is NaN.
        min = _mm512_min_ps(values, min);
        max = _mm512_max_ps(values, max);
        if ZEROS {
            let magnitudes = _mm512_and_si512(_mm512_castps_si512(values), magnitude_bits);
            let is_zero = _mm512_cmplt_epu32_mask(magnitudes, bound);
            zeros = _mm512_mask_add_epi32(zeros, is_zero, zeros, one);
        }
    }

    let mut lanes = Lanes::NOTHING;
    // SAFETY: each array is 16 lanes wide and, the struct being so, 64-byte aligned.
    unsafe {
        _mm512_store_pd(lanes.sum.as_mut_ptr(), sum_low);
        _mm512_store_pd(lanes.sum.as_mut_ptr().add(8), sum_high);
        _mm512_store_pd(lanes.squares.as_mut_ptr(), squares_low);
        _mm512_store_pd(lanes.squares.as_mut_ptr().add(8), squares_high);
        _mm512_store_ps(lanes.min.as_mut_ptr(), min);
        _mm512_store_ps(lanes.max.as_mut_ptr(), max);
        _mm512_store_si512(lanes.zeros.as_mut_ptr().cast(), zeros);
    }
    lanes.add::<S, ZEROS>(tail, zero_bits);
    lanes.total()
}
