//! Numbers as pandas writes them: Python's shortest digits, numpy's rounding.

use trainmon_core::write_python_float;

/// Appends `value` as Python's `repr` prints it.
pub(crate) fn push_float(out: &mut Vec<u8>, value: f64) {
    write_python_float(value, |part| out.extend_from_slice(part.as_bytes()));
}

/// Rounds `value` to `ndigits` decimals like numpy's `round`: scale, round half to even, scale back. Values that would
/// overflow are unchanged.
pub(crate) fn round_decimals(value: f64, ndigits: u32) -> f64 {
    let scale = 10f64.powi(ndigits as i32);
    let scaled = value * scale;
    if scaled.is_finite() { scaled.round_ties_even() / scale } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repr(value: f64) -> String {
        let mut out = Vec::new();
        push_float(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rounding_is_numpys() {
        assert_eq!(repr(round_decimals(-3.132_4e-10, 12)), "-3.13e-10");
        assert_eq!(repr(round_decimals(-3e-10, 6)), "-0.0");
        assert_eq!(round_decimals(0.125, 2), 0.12);
        assert_eq!(round_decimals(1e300, 12), 1e300);
        assert!(round_decimals(f64::NAN, 6).is_nan());
        assert_eq!(round_decimals(f64::INFINITY, 6), f64::INFINITY);
    }
}
