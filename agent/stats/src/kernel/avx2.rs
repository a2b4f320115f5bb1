//! The 16-lane kernel of `single` on AVX2: two vectors of float32, four of float64 sums, four of squares.
#![expect(unsafe_code, reason = "vector loads and stores at raw addresses")]

use std::arch::x86_64::{
    __m128i, __m256, __m256d, _mm_loadu_si128, _mm256_add_pd, _mm256_and_si256, _mm256_castps_si256,
    _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_cmpgt_epi32, _mm256_cvtepu16_epi32, _mm256_cvtph_ps,
    _mm256_cvtps_pd, _mm256_extractf128_ps, _mm256_fmadd_pd, _mm256_loadu_ps, _mm256_max_ps, _mm256_min_ps,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_pd, _mm256_setzero_si256, _mm256_slli_epi32, _mm256_store_pd,
    _mm256_store_ps, _mm256_store_si256, _mm256_sub_epi32,
};

use super::single::{BlockTotals, LANES, Lanes, Single};

/// # Safety
/// AVX2 is there, 8 elements are readable.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_f32(from: *const f32) -> __m256 {
    // SAFETY: the caller's.
    unsafe { _mm256_loadu_ps(from) }
}

/// # Safety
/// AVX2 is there, 8 elements are readable.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_bf16(from: *const __m128i) -> __m256 {
    // SAFETY: the caller's.
    let halves = unsafe { _mm_loadu_si128(from) };
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
}

/// # Safety
/// AVX2 and F16C are there, 8 elements are readable.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_f16(from: *const __m128i) -> __m256 {
    // SAFETY: the caller's.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(from) })
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn widen(values: __m256) -> [__m256d; 2] {
    [_mm256_cvtps_pd(_mm256_castps256_ps128(values)), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(values))]
}

/// What a block gives.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn totals<S: Single, const ZEROS: bool>(block: &[S], zero_bits: u32) -> BlockTotals {
    const HALF: usize = LANES / 2;
    let mut sum = [_mm256_setzero_pd(); 4];
    let mut squares = [_mm256_setzero_pd(); 4];
    let mut min = [_mm256_set1_ps(f32::INFINITY); 2];
    let mut max = [_mm256_set1_ps(f32::NEG_INFINITY); 2];
    let mut zeros = [_mm256_setzero_si256(); 2];
    let magnitude_bits = _mm256_set1_epi32(0x7fff_ffff);
    // Magnitudes and the bound have no sign bit, so the signed comparison is right.
    let bound = _mm256_set1_epi32(zero_bits.cast_signed());

    let (chunks, tail) = block.as_chunks::<LANES>();
    for chunk in chunks {
        for half in 0..2 {
            // SAFETY: a chunk is 16 elements; this function runs on AVX2 only.
            let values = unsafe { S::load256(chunk.as_ptr().add(half * HALF)) };
            for (quarter, wide) in widen(values).into_iter().enumerate() {
                let lane = half * 2 + quarter;
                sum[lane] = _mm256_add_pd(sum[lane], wide);
                squares[lane] = _mm256_fmadd_pd(wide, wide, squares[lane]);
            }
            // The second operand is the result when one is NaN.
            min[half] = _mm256_min_ps(values, min[half]);
            max[half] = _mm256_max_ps(values, max[half]);
            if ZEROS {
                let magnitudes = _mm256_and_si256(_mm256_castps_si256(values), magnitude_bits);
                zeros[half] = _mm256_sub_epi32(zeros[half], _mm256_cmpgt_epi32(bound, magnitudes));
            }
        }
    }

    let mut lanes = Lanes::NOTHING;
    // SAFETY: each array is 16 lanes wide and, the struct being so, 64-byte aligned.
    unsafe {
        for lane in 0..4 {
            _mm256_store_pd(lanes.sum.as_mut_ptr().add(lane * 4), sum[lane]);
            _mm256_store_pd(lanes.squares.as_mut_ptr().add(lane * 4), squares[lane]);
        }
        for half in 0..2 {
            _mm256_store_ps(lanes.min.as_mut_ptr().add(half * HALF), min[half]);
            _mm256_store_ps(lanes.max.as_mut_ptr().add(half * HALF), max[half]);
            _mm256_store_si256(lanes.zeros.as_mut_ptr().add(half * HALF).cast(), zeros[half]);
        }
    }
    lanes.add::<S, ZEROS>(tail, zero_bits);
    lanes.total()
}
