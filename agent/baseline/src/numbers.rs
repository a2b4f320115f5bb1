//! Numbers for people.

/// Six significant digits at most: `0.332148`, `1.5e-7`.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "NaN".to_owned() } else { value.to_string() };
    }
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{value:.5e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
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
    fn numbers_are_short_and_lose_nothing_that_matters() {
        for (value, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.332_148_1, "0.332148"),
            (-1.5e-7, "-1.5e-7"),
            (123_456.7, "123457"),
            (3e9, "3e9"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(short(value), expected);
        }
    }
}
