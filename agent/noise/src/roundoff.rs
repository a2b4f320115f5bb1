//! How far rounding takes a sum.

use trainmon_core::Dtype;

/// The unit round-off of float32: what means and long sums are made in at least.
pub const SINGLE: f64 = 5.960_464_477_539_063e-8;

/// Unit round-off of a type's elements; 0 for one that is not rounded. Of the 8-bit types the coarsest stands for all.
pub fn unit_roundoff(dtype: Dtype) -> f64 {
    let dtype = if dtype.is_floating() && dtype.size() == 1 { Dtype::F8E5M2 } else { dtype };
    dtype.unit_roundoff().unwrap_or(0.0)
}

/// By how much of its size a sum of `terms` rounded terms is off in another order: about √n units of round-off (Higham, Accuracy and
/// Stability of Numerical Algorithms, §2.8: the probabilistic bound; the sure one is n).
pub fn of_sum(unit: f64, terms: f64) -> f64 {
    unit * terms.max(1.0).sqrt()
}

/// By how much float32 sums of the same `terms` numbers may be apart in another order: the mean as a part of the root mean square
/// (`mean` is the mean as that part), and the norm of itself. Sums are made in pairs, so that a term is rounded log2 n times; rounding
/// of terms of both signs grows as their root, that of others as their sum (Higham §4.2). Eight times the standard deviation.
pub fn of_reordered_sums(terms: f64, mean: f64) -> [f64; 2] {
    const SURE: f64 = 8.0;
    let terms = terms.max(2.0);
    [SURE * SINGLE * ((terms.log2() / terms).sqrt() + mean.abs()), SURE * SINGLE]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_a_hundred_terms_is_off_by_ten_units() {
        assert!((of_sum(unit_roundoff(Dtype::F32), 100.0) - 10.0 * SINGLE).abs() < 1e-20);
        assert_eq!(of_sum(SINGLE, 0.0), SINGLE);
        assert_eq!(unit_roundoff(Dtype::I64), 0.0);
    }
}
