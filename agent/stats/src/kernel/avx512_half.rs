//! The kernels of the 16-bit floats on AVX-512.
//!
//! They are bound by instructions, not by memory, so they process 32 elements in a register of 16-bit words where possible.
//! Bit patterns are ordered like the magnitudes: the largest signed pattern is the largest element, and the largest
//! unsigned pattern the smallest. If all elements have the same sign, one of the two needs a second pass over the block in
//! the cache.
#![expect(unsafe_code, reason = "vector loads at raw addresses")]

use std::arch::x86_64::{
    __m512, __m512i, _mm256_maskz_loadu_epi16, _mm512_and_si512, _mm512_castsi512_ps, _mm512_cvtph_ps,
    _mm512_loadu_si512, _mm512_mask_cmplt_epu16_mask, _mm512_mask_max_epi16, _mm512_mask_max_epu16,
    _mm512_mask_min_epu16, _mm512_maskz_loadu_epi16, _mm512_set1_epi16, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_slli_epi32, _mm512_store_ps, _mm512_storeu_si512,
};

use super::SINGLE_LANES;
use super::avx512::{Moments, SIXTEEN, ask_ahead, widen_at};
use super::single::Half;
use crate::partial::Totals;

/// The bits of a 16-bit float's magnitude.
const MAGNITUDE: i16 = i16::MAX;

/// Loads up to 32 elements and widens the even and the odd ones, lane by lane; 0 where the mask has no bit.
///
/// # Safety
/// AVX-512 is available, the elements selected by the mask are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
#[inline]
pub(super) unsafe fn load_bf16(chunk: *const i16, mask: u32) -> [__m512; 2] {
    // SAFETY: guaranteed by the caller.
    let pairs = unsafe { _mm512_maskz_loadu_epi16(mask, chunk) };
    let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
    [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(odd)]
}

/// Loads up to 32 elements and widens the first and the second 16, lane by lane; 0 where the mask has no bit.
///
/// # Safety
/// AVX-512 is available, the elements selected by the mask are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
#[inline]
pub(super) unsafe fn load_f16(chunk: *const i16, mask: u32) -> [__m512; 2] {
    // SAFETY: guaranteed by the caller; nothing is read where the mask has no bit.
    let [first, second] = unsafe {
        [
            _mm256_maskz_loadu_epi16(mask as u16, chunk),
            _mm256_maskz_loadu_epi16((mask >> SIXTEEN) as u16, chunk.wrapping_add(SIXTEEN)),
        ]
    };
    [_mm512_cvtph_ps(first), _mm512_cvtph_ps(second)]
}

/// A buffer between the two widenings: storing and reloading splits registers on ports that are otherwise idle.
#[repr(C, align(64))]
struct Widened([f32; SINGLE_LANES]);

/// The extreme bit patterns and the number of zeros.
#[derive(Clone, Copy)]
struct Patterns {
    signed: __m512i,
    unsigned: __m512i,
    zeros: u32,
}

impl Patterns {
    /// Adds the elements selected by the mask.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
    #[inline]
    fn add<const ZEROS: bool>(&mut self, values: __m512i, mask: u32, bound: __m512i) {
        self.signed = _mm512_mask_max_epi16(self.signed, mask, self.signed, values);
        self.unsigned = _mm512_mask_max_epu16(self.unsigned, mask, self.unsigned, values);
        if ZEROS {
            let magnitudes = _mm512_and_si512(values, _mm512_set1_epi16(MAGNITUDE));
            self.zeros += _mm512_mask_cmplt_epu16_mask(mask, magnitudes, bound).count_ones();
        }
    }
}

/// Computes the totals of a block of 16-bit floats; `zero_bound` is the least bit pattern that is not counted as zero. If
/// an element is NaN, the extremes are meaningless.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
pub(super) fn halves<S: Half, const ZEROS: bool>(block: &[S], zero_bound: u16) -> Totals {
    let mut moments = Moments::nothing();
    let mut patterns = Patterns { signed: _mm512_set1_epi16(i16::MIN), unsigned: _mm512_setzero_si512(), zeros: 0 };
    let bound = _mm512_set1_epi16(zero_bound.cast_signed());
    let mut widened = Widened([0.0; SINGLE_LANES]);
    let (chunks, tail) = block.as_chunks::<SINGLE_LANES>();
    for chunk in chunks {
        ask_ahead(chunk.as_ptr());
        // SAFETY: a chunk and `widened` are 32 elements, the latter aligned; this function runs on AVX-512 only.
        unsafe {
            let [first, second] = S::load512(chunk.as_ptr(), u32::MAX);
            let at = widened.0.as_mut_ptr();
            _mm512_store_ps(at, first);
            _mm512_store_ps(at.add(SIXTEEN), second);
            moments.add(widen_at(at));
            patterns.add::<ZEROS>(_mm512_loadu_si512(chunk.as_ptr().cast()), u32::MAX, bound);
        }
    }
    if !tail.is_empty() {
        let mask = u32::MAX >> (SINGLE_LANES - tail.len());
        // SAFETY: the mask selects the elements of the tail; nothing else is read.
        unsafe {
            moments.add_values(S::load512(tail.as_ptr(), mask));
            patterns.add::<ZEROS>(_mm512_maskz_loadu_epi16(mask, tail.as_ptr().cast()), mask, bound);
        }
    }
    let (sum, squares) = moments.total();
    let (min, max) = extremes(block, patterns);
    Totals { min, max, sum, squares, zeros: u64::from(patterns.zeros) }
}

/// Returns the smallest and the largest element.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
#[inline]
fn extremes<S: Half>(block: &[S], patterns: Patterns) -> (f64, f64) {
    let signed = words(patterns.signed).into_iter().map(u16::cast_signed).max().unwrap_or(0);
    let unsigned = words(patterns.unsigned).into_iter().max().unwrap_or(0);
    let value = |pattern: u16| f64::from(S::from_bits(pattern).widen());
    let (has_positive, has_negative) = (signed >= 0, unsigned > MAGNITUDE.cast_unsigned());
    let min = if has_negative { unsigned } else { least_magnitude(block) };
    let max = if has_positive { signed.cast_unsigned() } else { least_magnitude(block) };
    (value(min), value(max))
}

/// Returns the bit pattern of the smallest magnitude of elements with the same sign.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
fn least_magnitude<S: Half>(block: &[S]) -> u16 {
    let mut least = [_mm512_set1_epi16(-1); 2];
    let (chunks, tail) = block.as_chunks::<SINGLE_LANES>();
    for (at, chunk) in chunks.iter().enumerate() {
        // SAFETY: a chunk is 32 elements.
        let values = unsafe { _mm512_loadu_si512(chunk.as_ptr().cast()) };
        least[at % 2] = _mm512_mask_min_epu16(least[at % 2], u32::MAX, least[at % 2], values);
    }
    if !tail.is_empty() {
        let mask = u32::MAX >> (SINGLE_LANES - tail.len());
        // SAFETY: the mask selects the elements of the tail; nothing else is read.
        let values = unsafe { _mm512_maskz_loadu_epi16(mask, tail.as_ptr().cast()) };
        least[0] = _mm512_mask_min_epu16(least[0], mask, least[0], values);
    }
    least.into_iter().flat_map(|register| words(register)).min().unwrap_or(0)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
#[inline]
fn words(register: __m512i) -> [u16; SINGLE_LANES] {
    let mut words = [0; SINGLE_LANES];
    // SAFETY: 32 words are one register.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), register) };
    words
}
