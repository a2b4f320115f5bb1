//! Differences in units in the last place.

/// Bins: 0, up to 1, 2, 4, ... and beyond 2^14 units.
pub(crate) const ULP_BINS: usize = 17;

/// The bin of a difference, in units of the baseline.
pub(crate) fn ulp_bin(difference: f64, golden: f64, roundoff: f64) -> usize {
    if difference == 0.0 {
        return 0;
    }
    // Neighbours differ by 2u times the power of two at or below the number.
    let exponent = if golden == 0.0 { 0 } else { exponent_of(golden) };
    let ulps = difference / (2.0 * roundoff * power_of_two(exponent));
    if ulps <= 1.0 { 1 } else { (exponent_of(ulps) as usize + 2).min(ULP_BINS - 1) }
}

/// The exponent of the power of two at or below a nonzero number; subnormal numbers count as the smallest normal one.
fn exponent_of(value: f64) -> i32 {
    (((value.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(-1022)
}

/// A power of two from its bits: this is the innermost loop, and `powi` is a call. Exponents of normal numbers only.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
