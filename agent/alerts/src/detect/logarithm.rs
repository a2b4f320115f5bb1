//! Logarithm and exponential from additions, multiplications and divisions only. Those of the system's library differ
//! in the last digit between processors, so that checkpoint states and findings would, too.

/// The number of terms of the series. With |t| <= 1/3 or |x| <= 0.35, the rest is below 1e-16 of the sum.
const TERMS: u32 = 16;

/// The natural logarithm of a finite number above zero.
pub(crate) fn logarithm(value: f64) -> f64 {
    let bits = value.max(f64::MIN_POSITIVE).to_bits();
    let exponent = (bits >> 52) as i32 - 1_023;
    let mantissa = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 0x3ff0_0000_0000_0000);
    // ln m = 2 artanh((m - 1) / (m + 1)) for m from 1 to 2.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let series = (0..TERMS).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * t * series
}

/// e to the power of a number, clamped to +-700.
pub(crate) fn exponential(power: f64) -> f64 {
    let power = power.clamp(-700.0, 700.0);
    let whole = (power * std::f64::consts::LOG2_E).round();
    let rest = power - whole * std::f64::consts::LN_2;
    let series = (1..=TERMS).rev().fold(1.0, |sum, term| 1.0 + sum * rest / f64::from(term));
    series * f64::from_bits(((whole as i64 + 1_023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_agree_with_the_systems_to_rounding() {
        for step in 1..4_000 {
            let power = f64::from(step) * 0.017 - 34.0;
            let value = power.exp();
            assert!((exponential(power) / value - 1.0).abs() < 1e-14, "{power}");
            assert!((logarithm(value) - power).abs() < 1e-14 * power.abs().max(1.0), "{value}");
        }
        assert_eq!((logarithm(1.0), exponential(0.0)), (0.0, 1.0));
        assert!(exponential(1e9).is_finite() && logarithm(0.0).is_finite());
    }
}
