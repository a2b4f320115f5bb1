//! Numbers as pandas writes them: Python's shortest digits, numpy's rounding.

use std::io::Write;

/// Appends `value` as Python's `repr` prints it: the shortest digits that read back as the same float64, an exponent
/// below 1e-4 and from 1e16 on (`4.2e-11`, `1e-08`, `1e+16`), `nan`, `inf`.
///
/// The digits are `ryu`'s: of two equally short and equally near candidates it takes the even one, as Python does.
/// Rust's own formatting takes the larger.
pub(super) fn push_float(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"nan");
        return;
    }
    if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
        return;
    }
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(value);
    match text.split_once('e') {
        Some((digits, exponent)) => push_exponent_form(out, digits, exponent.parse().unwrap_or(0)),
        // ryu writes 0.0000123 where Python has 1.23e-05 already.
        None if (1e-5..1e-4).contains(&value.abs()) => {
            let (sign, digits) = text.split_at(usize::from(value < 0.0));
            let digits = digits.trim_start_matches(['0', '.']);
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            push_exponent_form(out, &format!("{sign}{first}{point}{rest}"), -5);
        }
        None => out.extend_from_slice(text.as_bytes()),
    }
}

/// Python writes the exponent with a sign and at least two digits, and no `.0` before it.
fn push_exponent_form(out: &mut Vec<u8>, digits: &str, exponent: i32) {
    let digits = digits.strip_suffix(".0").unwrap_or(digits);
    let sign = if exponent < 0 { '-' } else { '+' };
    // Writing to a Vec cannot fail.
    let _infallible = write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs());
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
            (-0.000_012_34, "-1.234e-05"),
            (0.000_01, "1e-05"),
            // Two candidates are equally short and near: ...562 and ...563.
            (f64::from(2.624_794_f32), "2.6247940063476562"),
            (f64::from(-2.057_93_f32), "-2.0579299926757812"),
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
