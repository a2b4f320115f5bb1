//! The rounding error of sums.

use trainmon_core::Dtype;

/// The unit round-off of float32, the coarsest precision of means and long sums.
pub const SINGLE: f64 = 5.960_464_477_539_063e-8;

/// Returns the unit round-off of a dtype; 0 for integers. All 8-bit types have that of the coarsest one.
pub fn unit_roundoff(dtype: Dtype) -> f64 {
    let dtype = if dtype.is_floating() && dtype.size() == 1 { Dtype::F8E5M2 } else { dtype };
    dtype.unit_roundoff().unwrap_or(0.0)
}

/// Returns the relative error of a sum of `terms` rounded terms in another order: about √n units of round-off (Higham, Accuracy
/// and Stability of Numerical Algorithms, §2.8: the probabilistic bound; the certain one is n).
pub fn of_sum(unit: f64, terms: f64) -> f64 {
    unit * terms.max(1.0).sqrt()
}

/// Returns the relative difference of float32 sums of the same `terms` numbers in another order: of the mean, relative to the
/// root mean square (`mean` is the mean relative to it), and of the norm. Sums are pairwise, so a term is rounded log2 n times;
/// rounding errors of terms of both signs grow as their root, those of other terms as their sum (Higham §4.2). Eight times the
/// standard deviation.
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
