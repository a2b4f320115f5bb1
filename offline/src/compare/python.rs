//! Values as Python prints them: msprobe's tables are full of such texts.

use std::fmt::Write as _;

use trainmon_dump::capture::Plain;

/// `repr` of a float: the shortest digits that give the same number again, an exponent below 1e-4 and from 1e16 on.
pub(crate) fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0.0" } else { "0.0" }.to_owned();
    }
    let (digits, exponent) = shortest(value.abs());
    let magnitude = exponent + digits.len() as i32 - 1;
    // One allocation: a table has millions of these.
    let mut text = String::with_capacity(32);
    if value < 0.0 {
        text.push('-');
    }
    match magnitude {
        -4..0 => {
            text.push_str("0.");
            text.extend(std::iter::repeat_n('0', (-magnitude - 1) as usize));
            text.push_str(&digits);
        }
        0..16 if exponent >= 0 => {
            text.push_str(&digits);
            text.extend(std::iter::repeat_n('0', exponent as usize));
            text.push_str(".0");
        }
        0..16 => {
            let (whole, fraction) = digits.split_at(magnitude as usize + 1);
            text.extend([whole, ".", fraction]);
        }
        _ => {
            let (whole, fraction) = digits.split_at(1);
            text.push_str(whole);
            if !fraction.is_empty() {
                text.extend([".", fraction]);
            }
            text.push_str(if magnitude < 0 { "e-" } else { "e+" });
            if magnitude.abs() < 10 {
                text.push('0');
            }
            text.push_str(&magnitude.abs().to_string());
        }
    }
    text
}

/// The shortest digits of a positive number and the power of ten of the last of them. Where two are equally near, Rust's own
/// formatting takes the larger one, Python and this library the even one.
fn shortest(value: f64) -> (String, i32) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.parse::<i32>().unwrap_or(0) - fraction.len() as i32;
    let mut digits = String::with_capacity(text.len());
    digits.push_str(whole.trim_start_matches('0'));
    digits.push_str(if digits.is_empty() { fraction.trim_start_matches('0') } else { fraction });
    let kept = digits.trim_end_matches('0').len();
    let exponent = exponent + (digits.len() - kept) as i32;
    digits.truncate(kept);
    (digits, exponent)
}

/// `str` of a value.
pub(crate) fn text(value: &Plain) -> String {
    match value {
        Plain::Null => "None".to_owned(),
        Plain::Bool(true) => "True".to_owned(),
        Plain::Bool(false) => "False".to_owned(),
        Plain::Int(value) => value.to_string(),
        Plain::Big(digits) => digits.to_string(),
        Plain::Float(value) => float(*value),
        Plain::Text(text) => text.to_string(),
        Plain::List(items) => {
            let items: Vec<String> = items.iter().map(repr).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

/// `repr` of a value: texts have quotes.
pub(crate) fn repr(value: &Plain) -> String {
    match value {
        Plain::Text(text) => quoted(text),
        other => text(other),
    }
}

/// `repr` of a text.
pub(crate) fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push(quote);
    for letter in text.chars() {
        match letter {
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            _ if letter == quote => quoted.extend(['\\', letter]),
            // Writing into a String does not fail.
            _ if letter.is_control() => _ = write!(quoted, "\\x{:02x}", u32::from(letter)),
            _ => quoted.push(letter),
        }
    }
    quoted.push(quote);
    quoted
}

/// `repr` of a list of texts.
pub(crate) fn list<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(quoted).collect();
    format!("[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_python_prints_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (0.00012, "0.00012"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (123_456.789, "123456.789"),
            (1.5e-7, "1.5e-07"),
            (-2.5e300, "-2.5e+300"),
            (99_900.0, "99900.0"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
            (-0.000_5, "-0.0005"),
            (1.311_622_619_628_906_2, "1.3116226196289062"),
            (5e-324, "5e-324"),
        ];
        for (value, text) in cases {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn texts_in_lists_have_pythons_quotes() {
        assert_eq!(list(["a", "it's", "a\"'b", "n\n"]), r#"['a', "it's", 'a"\'b', 'n\n']"#);
    }
}
