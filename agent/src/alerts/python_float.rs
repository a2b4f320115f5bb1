//! Floats as Python prints them: msprobe's messages are made of them.

/// `repr(float)`: the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
pub(crate) fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{value:?}")
}

#[cfg(test)]
mod tests {
    use super::python_float;

    #[test]
    fn it_prints_what_python_prints() {
        for (value, text) in [
            (7.450_580_596_923_828e-9, "7.450580596923828e-09"),
            (1e-4, "0.0001"),
            (-0.00012, "-0.00012"),
            (9.9e-5, "9.9e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.5e300, "-1.5e+300"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (3.0, "3.0"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(python_float(value), text);
        }
    }
}
