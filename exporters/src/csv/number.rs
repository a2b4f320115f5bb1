//! Numbers as pandas writes them: Python's shortest digits, numpy's rounding.

use std::io::Write;

/// Appends `value` as Python's `repr` prints it: the shortest digits that read back as the same float64, an exponent
/// below 1e-4 and from 1e16 on (`4.2e-11`, `1e-08`, `1e+16`), `nan`, `inf`.
pub(super) fn push_float(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"nan");
        return;
    }
    if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
        return;
    }
    let magnitude = value.abs();
    if value != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        push_exponent_form(out, value);
    } else {
        // Rust's Debug prints the shortest digits too, and always a fraction: `1.0`. Writing to a Vec cannot fail.
        let _infallible = write!(out, "{value:?}");
    }
}

/// Rust's `{:e}` has Python's digits; its exponent lacks the sign and the second digit.
fn push_exponent_form(out: &mut Vec<u8>, value: f64) {
    let start = out.len();
    let _infallible = write!(out, "{value:e}");
    let Some(e) = out[start..].iter().rposition(|&byte| byte == b'e') else { return };
    let digits = start + e + 1;
    let negative = out[digits] == b'-';
    if !negative {
        out.insert(digits, b'+');
    }
    if out.len() - (digits + 1) < 2 {
        out.insert(digits + 1, b'0');
    }
}

/// `value` rounded to `ndigits` decimals as numpy's `round` does it: scale, round half to even, scale back. Values that
/// the scaling would overflow stay as they are.
pub(super) fn round_decimals(value: f64, ndigits: u32) -> f64 {
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

    /// The right-hand sides were printed by Python 3.11's `repr`.
    #[test]
    fn floats_print_as_python_prints_them() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-0.047_878_697_515, "-0.047878697515"),
            (0.0001, "0.0001"),
            (0.000_099_9, "9.99e-05"),
            (4.2e-11, "4.2e-11"),
            (-5.588e-09, "-5.588e-09"),
            (1e-100, "1e-100"),
            (123_456_789.0, "123456789.0"),
            (9_007_199_254_740_993.0, "9007199254740992.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(repr(value), expected);
        }
    }

    #[test]
    fn shortest_digits_read_back_as_the_same_number() {
        for bits in (0u64..200_000).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
            let value = f64::from_bits(bits);
            if value.is_finite() {
                assert_eq!(repr(value).parse::<f64>().unwrap().to_bits(), value.to_bits());
            }
        }
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
