//! Formatting of numbers and names in messages.

use std::borrow::Cow;

/// A tensor's name in a message. Inputs and outputs of the root module, which has no name, are "the model's".
pub fn shown_name(name: &str) -> Cow<'_, str> {
    match name.strip_prefix('.') {
        Some(part) if !part.is_empty() => Cow::Owned(format!("the model's {part}")),
        _ => Cow::Borrowed(name),
    }
}

/// A tensor's name in a message, in backticks unless it is "the model's".
pub fn quoted_name(name: &str) -> String {
    match shown_name(name) {
        Cow::Borrowed(name) => format!("`{name}`"),
        Cow::Owned(shown) => shown,
    }
}

/// Formats a number with at most `digits` significant digits, as people write it: `17.6`, `0.332`, `1.5e-7`. Below a
/// million, digits before the decimal point are never dropped.
pub fn short(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let behind_first = digits.saturating_sub(1);
    let text = format!("{value:.behind_first$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(behind_first as i32 - exponent).unwrap_or(0);
        return trimmed(&format!("{value:.decimals$}")).to_owned();
    }
    format!("{}e{exponent}", trimmed(mantissa))
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_write_them() {
        for (value, digits, expected) in [
            (0.0, 6, "0"),
            (1.0, 6, "1"),
            (0.332_148_1, 6, "0.332148"),
            (-1.5e-7, 6, "-1.5e-7"),
            (123_456.7, 6, "123457"),
            (3e9, 6, "3e9"),
            (17.629, 3, "17.6"),
            (0.853_11, 3, "0.853"),
            (1.2823, 3, "1.28"),
            (9.999, 3, "10"),
            (41_207.4, 3, "41207"),
            (1_234_567.0, 3, "1.23e6"),
            (2.5e-5, 3, "2.5e-5"),
            (f64::NAN, 3, "NaN"),
            (f64::INFINITY, 3, "inf"),
            (f64::NEG_INFINITY, 3, "-inf"),
        ] {
            assert_eq!(short(value, digits), expected);
        }
    }
}
