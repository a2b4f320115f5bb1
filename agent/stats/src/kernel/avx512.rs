//! The kernels on AVX-512. The 32 lanes of float32 take two vectors, four of float64 sums, four of squares; a block's odd
//! end is loaded under a mask.
#![expect(unsafe_code, reason = "vector loads at raw addresses")]

use std::arch::x86_64::{
    __m512, __m512d, __m512i, _MM_HINT_T0, _mm_add_pd, _mm_add_sd, _mm_cvtsd_f64, _mm_prefetch, _mm_unpackhi_pd,
    _mm256_add_pd, _mm256_castpd256_pd128, _mm256_extractf128_pd, _mm256_loadu_ps, _mm256_maskz_loadu_epi16,
    _mm512_add_epi32, _mm512_add_pd, _mm512_and_si512, _mm512_castpd_si512, _mm512_castpd512_pd256,
    _mm512_castps_si512, _mm512_castps512_ps256, _mm512_castsi512_ps, _mm512_cvtph_ps, _mm512_cvtps_pd,
    _mm512_extractf32x8_ps, _mm512_extractf64x4_pd, _mm512_fmadd_pd, _mm512_loadu_si512, _mm512_mask_add_epi32,
    _mm512_mask_add_epi64, _mm512_mask_cmplt_epu32_mask, _mm512_mask_cmplt_epu64_mask, _mm512_mask_max_pd,
    _mm512_mask_max_ps, _mm512_mask_min_pd, _mm512_mask_min_ps, _mm512_maskz_loadu_epi16, _mm512_maskz_loadu_pd,
    _mm512_maskz_loadu_ps, _mm512_max_ps, _mm512_min_ps, _mm512_mul_pd, _mm512_reduce_add_epi32,
    _mm512_reduce_add_epi64, _mm512_reduce_max_pd, _mm512_reduce_max_ps, _mm512_reduce_min_pd, _mm512_reduce_min_ps,
    _mm512_set1_epi32, _mm512_set1_epi64, _mm512_set1_pd, _mm512_set1_ps, _mm512_setzero_pd, _mm512_setzero_si512,
    _mm512_slli_epi32, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::single::Single;
use super::{LANES, SINGLE_LANES, Totals};

const ALL: u16 = u16::MAX;
/// The float32 in one register.
const SIXTEEN: usize = SINGLE_LANES / 2;
const CACHE_LINE: usize = 64;

/// How far ahead memory is asked for, in bytes: what arrives during one memory latency (some 100 ns at 40 GB/s). The
/// processor's own prefetching stops at page ends and while a block's checksum is taken. Beyond the tensor's end it is
/// a hint without effect.
const AHEAD: usize = 4096;

/// # Safety
/// AVX-512 is there, the elements named by the mask are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_f32(chunk: *const f32, mask: u32) -> [__m512; 2] {
    // SAFETY: the caller's; nothing is read where the mask has no bit.
    unsafe {
        [
            _mm512_maskz_loadu_ps(mask as u16, chunk),
            _mm512_maskz_loadu_ps((mask >> SIXTEEN) as u16, chunk.wrapping_add(SIXTEEN)),
        ]
    }
}

/// The even and the odd elements of one register.
///
/// # Safety
/// AVX-512 is there, the elements named by the mask are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_bf16(chunk: *const i16, mask: u32) -> [__m512; 2] {
    // SAFETY: the caller's.
    let pairs = unsafe { _mm512_maskz_loadu_epi16(mask, chunk) };
    let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
    [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(odd)]
}

/// # Safety
/// AVX-512 is there, the elements named by the mask are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_f16(chunk: *const i16, mask: u32) -> [__m512; 2] {
    // SAFETY: the caller's; nothing is read where the mask has no bit.
    let [first, second] = unsafe {
        [
            _mm256_maskz_loadu_epi16(mask as u16, chunk),
            _mm256_maskz_loadu_epi16((mask >> SIXTEEN) as u16, chunk.wrapping_add(SIXTEEN)),
        ]
    };
    [_mm512_cvtph_ps(first), _mm512_cvtph_ps(second)]
}

/// Which of each half's lanes hold one of the first `count` elements of a chunk.
fn lane_masks<S: Single>(count: usize) -> [u16; 2] {
    (0..count).map(S::lane).fold([0; 2], |mut masks, lane| {
        masks[lane / SIXTEEN] |= 1 << (lane % SIXTEEN);
        masks
    })
}

/// In the order of [`sum_of_lanes`](super::sum_of_lanes).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline]
fn sum_of_lanes([low, high]: [__m512d; 2]) -> f64 {
    let eight = _mm512_add_pd(low, high);
    let four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd::<1>(eight));
    let two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd::<1>(four));
    _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
}

/// The first and the second eight values.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline]
fn widen(values: __m512) -> [__m512d; 2] {
    [_mm512_cvtps_pd(_mm512_castps512_ps256(values)), _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(values))]
}

/// The same, read anew: for float32 a load is cheaper than taking a register apart.
///
/// # Safety
/// AVX-512 is there, 16 elements are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline]
unsafe fn widen_at(from: *const f32) -> [__m512d; 2] {
    // SAFETY: the caller's.
    unsafe { [_mm512_cvtps_pd(_mm256_loadu_ps(from)), _mm512_cvtps_pd(_mm256_loadu_ps(from.add(8)))] }
}

/// 16 of the 32 lanes.
#[derive(Clone, Copy)]
struct SixteenLanes {
    sum: [__m512d; 2],
    squares: [__m512d; 2],
    min: __m512,
    max: __m512,
    zeros: __m512i,
}

impl SixteenLanes {
    /// Adds the elements named by the mask; the others are 0 and change no sum. A NaN leaves the extremes alone: of two
    /// operands one of which is NaN, the second is the result.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    #[inline]
    fn add<const ZEROS: bool>(&mut self, values: __m512, wide: [__m512d; 2], mask: u16, bound: __m512i) {
        for (half, wide) in wide.into_iter().enumerate() {
            // Times one, plus: the same bits as an addition, on units that have less to do.
            self.sum[half] = _mm512_fmadd_pd(wide, _mm512_set1_pd(1.0), self.sum[half]);
            self.squares[half] = _mm512_fmadd_pd(wide, wide, self.squares[half]);
        }
        self.min = _mm512_mask_min_ps(self.min, mask, values, self.min);
        self.max = _mm512_mask_max_ps(self.max, mask, values, self.max);
        if ZEROS {
            let magnitudes = _mm512_and_si512(_mm512_castps_si512(values), _mm512_set1_epi32(0x7fff_ffff));
            let is_zero = _mm512_mask_cmplt_epu32_mask(mask, magnitudes, bound);
            self.zeros = _mm512_mask_add_epi32(self.zeros, is_zero, self.zeros, _mm512_set1_epi32(1));
        }
    }
}

/// Lane by lane the sums of the first and the second 16.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline]
fn paired([a_low, a_high]: [__m512d; 2], [b_low, b_high]: [__m512d; 2]) -> [__m512d; 2] {
    [_mm512_add_pd(a_low, b_low), _mm512_add_pd(a_high, b_high)]
}

/// What a block of float32, or of what widens to it, gives.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) fn singles<S: Single, const ZEROS: bool>(block: &[S], zero_bits: u32) -> Totals {
    let mut lanes = [SixteenLanes {
        sum: [_mm512_setzero_pd(); 2],
        squares: [_mm512_setzero_pd(); 2],
        min: _mm512_set1_ps(f32::INFINITY),
        max: _mm512_set1_ps(f32::NEG_INFINITY),
        zeros: _mm512_setzero_si512(),
    }; 2];
    let bound = _mm512_set1_epi32(zero_bits.cast_signed());
    let (chunks, tail) = block.as_chunks::<SINGLE_LANES>();
    for chunk in chunks {
        let from = chunk.as_ptr();
        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_byte_add(AHEAD).cast());
        if S::IS_F32 {
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_byte_add(AHEAD + CACHE_LINE).cast());
        }
        // SAFETY: a chunk is 32 elements; this function runs on AVX-512 only.
        let values = unsafe { S::load512(from, u32::MAX) };
        for (half, (values, lanes)) in values.into_iter().zip(&mut lanes).enumerate() {
            // SAFETY: the elements are float32 in memory, 16 of them in each half.
            let wide = if S::IS_F32 { unsafe { widen_at(from.add(half * SIXTEEN).cast()) } } else { widen(values) };
            lanes.add::<ZEROS>(values, wide, ALL, bound);
        }
    }
    if !tail.is_empty() {
        // SAFETY: the mask names the elements of the tail.
        let values = unsafe { S::load512(tail.as_ptr(), u32::MAX >> (SINGLE_LANES - tail.len())) };
        for ((values, lanes), mask) in values.into_iter().zip(&mut lanes).zip(lane_masks::<S>(tail.len())) {
            lanes.add::<ZEROS>(values, widen(values), mask, bound);
        }
    }
    let [a, b] = lanes;
    Totals {
        min: f64::from(_mm512_reduce_min_ps(_mm512_min_ps(a.min, b.min))),
        max: f64::from(_mm512_reduce_max_ps(_mm512_max_ps(a.max, b.max))),
        sum: sum_of_lanes(paired(a.sum, b.sum)),
        squares: sum_of_lanes(paired(a.squares, b.squares)),
        zeros: if ZEROS { _mm512_reduce_add_epi32(_mm512_add_epi32(a.zeros, b.zeros)) as u64 } else { 0 },
    }
}

#[derive(Clone, Copy)]
struct DoubleLanes {
    sum: [__m512d; 2],
    squares: [__m512d; 2],
    min: [__m512d; 2],
    max: [__m512d; 2],
    zeros: __m512i,
}

impl DoubleLanes {
    /// As [`SingleLanes::add`], for one half of the lanes.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    #[inline]
    fn add<const ZEROS: bool>(&mut self, half: usize, values: __m512d, mask: u8, bound: __m512i) {
        self.sum[half] = _mm512_add_pd(self.sum[half], values);
        self.squares[half] = _mm512_add_pd(self.squares[half], _mm512_mul_pd(values, values));
        self.min[half] = _mm512_mask_min_pd(self.min[half], mask, values, self.min[half]);
        self.max[half] = _mm512_mask_max_pd(self.max[half], mask, values, self.max[half]);
        if ZEROS {
            let magnitudes = _mm512_and_si512(_mm512_castpd_si512(values), _mm512_set1_epi64(i64::MAX));
            let is_zero = _mm512_mask_cmplt_epu64_mask(mask, magnitudes, bound);
            self.zeros = _mm512_mask_add_epi64(self.zeros, is_zero, self.zeros, _mm512_set1_epi64(1));
        }
    }
}

/// What a block of float64 gives.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) fn doubles<const ZEROS: bool>(block: &[f64], zero_bits: u64) -> Totals {
    let mut lanes = DoubleLanes {
        sum: [_mm512_setzero_pd(); 2],
        squares: [_mm512_setzero_pd(); 2],
        min: [_mm512_set1_pd(f64::INFINITY); 2],
        max: [_mm512_set1_pd(f64::NEG_INFINITY); 2],
        zeros: _mm512_setzero_si512(),
    };
    let bound = _mm512_set1_epi64(zero_bits.cast_signed());
    let (chunks, tail) = block.as_chunks::<LANES>();
    let masks = |mask: u16| [(0, mask as u8), (1, (mask >> 8) as u8)];
    for chunk in chunks {
        for (half, mask) in masks(ALL) {
            _mm_prefetch::<_MM_HINT_T0>(chunk.as_ptr().wrapping_add(half * 8).wrapping_byte_add(AHEAD).cast());
            // SAFETY: a chunk is 16 elements.
            let values = unsafe { _mm512_maskz_loadu_pd(mask, chunk.as_ptr().add(half * 8)) };
            lanes.add::<ZEROS>(half, values, mask, bound);
        }
    }
    if !tail.is_empty() {
        for (half, mask) in masks(ALL >> (LANES - tail.len())) {
            // SAFETY: the masks name the elements of the tail; nothing else is read.
            let values = unsafe { _mm512_maskz_loadu_pd(mask, tail.as_ptr().wrapping_add(half * 8)) };
            lanes.add::<ZEROS>(half, values, mask, bound);
        }
    }
    Totals {
        min: _mm512_reduce_min_pd(lanes.min[0]).min(_mm512_reduce_min_pd(lanes.min[1])),
        max: _mm512_reduce_max_pd(lanes.max[0]).max(_mm512_reduce_max_pd(lanes.max[1])),
        sum: sum_of_lanes(lanes.sum),
        squares: sum_of_lanes(lanes.squares),
        zeros: if ZEROS { _mm512_reduce_add_epi64(lanes.zeros) as u64 } else { 0 },
    }
}

/// The XOR of all 64-bit words of 256-byte groups, lane by lane. Four registers: enough loads in flight.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
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
