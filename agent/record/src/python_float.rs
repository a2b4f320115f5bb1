//! Floats in Python's notation, which msprobe's tables and messages use.

/// Passes the parts of `repr(float)` to `put`, in order: the shortest digits that read back as the same float64, an
/// exponent below 1e-4 and from 1e16 on (`4.2e-11`, `1e-08`, `1e+16`), `nan`, `inf`.
///
/// The digits are from `ryu`: of two equally short and equally near candidates it takes the even one, like Python.
/// Rust's own formatting takes the larger one. Cost: no allocation.
pub fn write_python_float(value: f64, mut put: impl FnMut(&str)) {
    if value.is_nan() {
        return put("nan");
    }
    if value.is_infinite() {
        return put(if value > 0.0 { "inf" } else { "-inf" });
    }
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(value);
    match text.split_once('e') {
        Some((digits, exponent)) => {
            put(digits.strip_suffix(".0").unwrap_or(digits));
            put_exponent(exponent, put);
        }
        // ryu writes 0.0000123, Python 1.23e-05.
        None if (1e-5..1e-4).contains(&value.abs()) => {
            let (sign, digits) = text.split_at(usize::from(value < 0.0));
            let (first, rest) = digits.trim_start_matches(['0', '.']).split_at(1);
            for part in [sign, first, if rest.is_empty() { "" } else { "." }, rest] {
                put(part);
            }
            put_exponent("-5", put);
        }
        None => put(text),
    }
}

/// Returns the text of [`write_python_float`].
pub fn python_float(value: f64) -> String {
    let mut text = String::new();
    write_python_float(value, |part| text.push_str(part));
    text
}

/// Writes the exponent like Python, with a sign and at least two digits.
fn put_exponent(exponent: &str, mut put: impl FnMut(&str)) {
    let negative = exponent.strip_prefix('-');
    put(if negative.is_some() { "e-" } else { "e+" });
    let digits = negative.unwrap_or(exponent);
    if digits.len() < 2 {
        put("0");
    }
    put(digits);
}

#[cfg(test)]
mod tests {
    use super::python_float;

    /// The right-hand sides were printed by Python 3.11's `repr`.
    #[test]
    fn floats_print_as_python_prints_them() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-0.047_878_697_515, "-0.047878697515"),
            (0.0001, "0.0001"),
            (-0.00012, "-0.00012"),
            (0.000_099_9, "9.99e-05"),
            (-0.000_012_34, "-1.234e-05"),
            (0.000_01, "1e-05"),
            // Two candidates are equally short and near: ...562 and ...563.
            (f64::from(2.624_794_f32), "2.6247940063476562"),
            (f64::from(-2.057_93_f32), "-2.0579299926757812"),
            (7.450_580_596_923_828e-9, "7.450580596923828e-09"),
            (4.2e-11, "4.2e-11"),
            (-5.588e-09, "-5.588e-09"),
            (1e-100, "1e-100"),
            (123_456_789.0, "123456789.0"),
            (1e15, "1000000000000000.0"),
            (9_007_199_254_740_993.0, "9007199254740992.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(python_float(value), expected);
        }
    }

    #[test]
    fn shortest_digits_read_back_as_the_same_number() {
        for bits in (0u64..200_000).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
            let value = f64::from_bits(bits);
            if value.is_finite() {
                assert_eq!(python_float(value).parse::<f64>().unwrap().to_bits(), value.to_bits());
            }
        }
    }
}
