//! The norm of a difference, summed in the order of msprobe's numpy.
//!
//! `numpy.linalg.norm` of a vector is the root of its product with itself. That is `OpenBLAS`'s `ddot`, whose summation order
//! depends on the processor. On AVX-512 it has four accumulators of eight numbers with fused multiply-add, on AVX2 four of four
//! and a tail without fusing. Beyond 10,000 elements each thread sums a part. From three elements on, the last digit may differ
//! between two machines that run msprobe. This module always uses the order of AVX-512 with one thread; `docs/proof/compare-msprobe.md` lists
//! the differences to the others.

use trainmon_tensor_files::StoredTensor;

/// Elements per round of all accumulators.
const ROUND: usize = 32;
/// Elements of the half round that may follow.
const HALF_ROUND: usize = 16;
/// Elements per block: whole rounds.
const CHUNK: usize = 64 * ROUND;

/// The L2 norm of the difference of two tensors with the same number of elements. Elements that are not finite on both sides
/// count as zero.
pub(crate) fn euclidean(target: &StoredTensor, golden: &StoredTensor) -> f64 {
    let count = golden.numbers().min(target.numbers());
    let (mut a, mut b) = ([0.0; CHUNK], [0.0; CHUNK]);
    let mut sum = SumOfSquares::default();
    let mut from = 0;
    while from < count {
        let length = CHUNK.min(count - from);
        target.read_f64(from, &mut a[..length]);
        golden.read_f64(from, &mut b[..length]);
        for (a, &b) in a[..length].iter_mut().zip(&b) {
            *a = if a.is_finite() && b.is_finite() { *a - b } else { 0.0 };
        }
        sum.add(&a[..length]);
        from += length;
    }
    sum.finish().sqrt()
}

/// Sums squares in that order.
struct SumOfSquares {
    rounds: [f64; ROUND],
    /// The elements after the last whole round.
    rest: [f64; ROUND],
    rest_length: usize,
}

impl Default for SumOfSquares {
    fn default() -> Self {
        Self { rounds: [0.0; ROUND], rest: [0.0; ROUND], rest_length: 0 }
    }
}

impl SumOfSquares {
    /// Adds the next elements: whole rounds, except for the last call.
    fn add(&mut self, values: &[f64]) {
        let (rounds, rest) = values.as_chunks::<ROUND>();
        for round in rounds {
            for (sum, &value) in self.rounds.iter_mut().zip(round) {
                *sum = value.mul_add(value, *sum);
            }
        }
        self.rest[..rest.len()].copy_from_slice(rest);
        self.rest_length = rest.len();
    }

    fn finish(&self) -> f64 {
        // The upper half of each accumulator is added to its lower half.
        let mut lanes: [f64; HALF_ROUND] = std::array::from_fn(|lane| {
            let low = lane / 4 * 8 + lane % 4;
            self.rounds[low] + self.rounds[low + 4]
        });
        let mut rest = &self.rest[..self.rest_length];
        if let Some((half, tail)) = rest.split_at_checked(HALF_ROUND) {
            for (sum, &value) in lanes.iter_mut().zip(half) {
                *sum = value.mul_add(value, *sum);
            }
            rest = tail;
        }
        let four: [f64; 4] =
            std::array::from_fn(|lane| lanes[lane] + lanes[lane + 4] + lanes[lane + 8] + lanes[lane + 12]);
        let sum = (four[0] + four[2]) + (four[1] + four[3]);
        rest.iter().fold(sum, |sum, &value| value.mul_add(value, sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What numpy 2.4.6 with `OpenBLAS` 0.3.31 gives for the norm of the first so many differences on one thread: on
    /// AVX-512 (`OPENBLAS_CORETYPE=SkylakeX`), and on AVX2 (`Haswell`).
    const NUMPY: [(usize, u64, u64); 15] = [
        (1, 0x3fd1_0016_4000_0000, 0x3fd1_0016_4000_0000),
        (3, 0x3fe9_9241_b55b_5083, 0x3fe9_9241_b55b_5083),
        (7, 0x3ff5_3980_fab5_ecaf, 0x3ff5_3980_fab5_ecaf),
        (15, 0x4006_048b_4d6f_72f4, 0x4006_048b_4d6f_72f4),
        (16, 0x4006_5e50_0954_e2c0, 0x4006_5e50_0954_e2c0),
        (17, 0x4007_0ff1_c84c_f0d5, 0x4007_0ff1_c84c_f0d5),
        (31, 0x4010_6ea2_f457_05bc, 0x4010_6ea2_f457_05bc),
        (32, 0x4010_fbad_1675_e6c4, 0x4010_fbad_1675_e6c4),
        (48, 0x4014_e9f0_c54f_a602, 0x4014_e9f0_c54f_a603),
        (63, 0x4017_c97b_0df9_bb5d, 0x4017_c97b_0df9_bb5d),
        (100, 0x4020_c210_211b_badc, 0x4020_c210_211b_badc),
        (1_000, 0x4039_895f_7450_4184, 0x4039_895f_7450_4184),
        (9_999, 0x4054_5b01_c53f_763b, 0x4054_5b01_c53f_763f),
        (50_000, 0x4066_ce43_7495_d1bb, 0x4066_ce43_7495_d1c2),
        (100_003, 0x4070_1af7_5d24_9ac2, 0x4070_1af7_5d24_9ac5),
    ];

    /// Differences of float32 numbers in [-1, 1).
    fn differences(count: usize) -> Vec<f64> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from((f64::from(state.cast_signed()) / 2_147_483_648.0) as f32)
        };
        (0..count).map(|_| next() - next()).collect()
    }

    #[test]
    fn the_norm_is_numpys_to_the_bit_on_avx_512_and_near_it_on_avx2() {
        for (count, avx512, avx2) in NUMPY {
            let mut sum = SumOfSquares::default();
            for chunk in differences(count).chunks(CHUNK) {
                sum.add(chunk);
            }
            let norm = sum.finish().sqrt();
            assert_eq!(norm.to_bits(), avx512, "{count} elements");
            let apart = norm.to_bits().abs_diff(avx2);
            assert!(apart as f64 <= 1.0 + (count as f64).sqrt() / 16.0, "{count} elements: {apart} units apart");
        }
    }
}
