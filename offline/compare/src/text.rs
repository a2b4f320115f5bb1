//! Numbers in text.

/// A relative number as people write it: `0.64 %`, `52 %`, `35 times`; scientific below 0.001.
pub(crate) fn share(relative: f64) -> String {
    match relative {
        0.001..0.01 => format!("{:.2} %", relative * 100.0),
        0.01..0.1 => format!("{:.1} %", relative * 100.0),
        0.1..10.0 => format!("{:.0} %", relative * 100.0),
        10.0..1e6 => format!("{relative:.0} times"),
        1e6.. if relative.is_finite() => format!("{relative:.1e} times"),
        _ => format!("{relative:.1e}"),
    }
}

/// [`share`] with the quantity that it is relative to; `none` for 0.
pub(crate) fn of(relative: f64, whole: &str) -> String {
    if relative == 0.0 {
        return "none".to_owned();
    }
    let share = share(relative);
    if share.ends_with("times") { format!("{share} {whole}") } else { format!("{share} of {whole}") }
}

/// A factor with four digits and without trailing zeros: `2`, `0.3333`, `1.5`.
pub(crate) fn factor(number: f64) -> String {
    let places = (3 - number.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{number:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_written_as_people_write_them() {
        let shares = [6.4e-3, 0.0909, 0.52, 1.0, 35.2, 1e9].map(|relative| of(relative, "its size"));
        let expected = ["0.64 % of", "9.1 % of", "52 % of", "100 % of", "35 times", "1.0e9 times"];
        assert_eq!(shares, expected.map(|share| format!("{share} its size")));
        assert_eq!(of(0.0, "its size"), "none");
        assert_eq!([2.0, 1.0 / 3.0, 1.5, -0.125, 65536.0].map(factor), ["2", "0.3333", "1.5", "-0.125", "65536"]);
    }
}
