//! Values as Python prints them, for msprobe's tables.

use std::fmt::Write as _;

use trainmon_capture_files::Plain;
use trainmon_core::write_python_float;

/// `repr` of a float.
pub(crate) fn float(value: f64) -> String {
    // One allocation here, and none with [`push_float`]: a table has millions of these.
    let mut text = String::with_capacity(32);
    push_float(&mut text, value);
    text
}

/// Appends [`float`] to a text.
pub(crate) fn push_float(text: &mut String, value: f64) {
    if (1e-4..1e15).contains(&value.abs()) {
        // Python and the fastest library print these alike, and they are nearly all cells of a table.
        text.push_str(zmij::Buffer::new().format_finite(value));
        return;
    }
    write_python_float(value, |part| text.push_str(part));
}

/// `str` of a value.
pub(crate) fn text(value: &Plain) -> String {
    if let Plain::Text(text) = value {
        return text.to_string();
    }
    let mut text = String::with_capacity(24);
    push_text(&mut text, value);
    text
}

/// Appends [`text`] to a text.
pub(crate) fn push_text(to: &mut String, value: &Plain) {
    match value {
        Plain::Null => to.push_str("None"),
        Plain::Bool(true) => to.push_str("True"),
        Plain::Bool(false) => to.push_str("False"),
        // Writing into a String cannot fail.
        Plain::Int(value) => _ = write!(to, "{value}"),
        Plain::Big(digits) => to.push_str(digits),
        Plain::Float(value) => push_float(to, *value),
        Plain::Text(text) => to.push_str(text),
        Plain::List(items) => {
            to.push('[');
            for (index, item) in items.iter().enumerate() {
                to.push_str(if index == 0 { "" } else { ", " });
                push_repr(to, item);
            }
            to.push(']');
        }
    }
}

/// Appends the `repr` of a value, texts in quotes.
fn push_repr(to: &mut String, value: &Plain) {
    match value {
        Plain::Text(text) => to.push_str(&quoted(text)),
        other => push_text(to, other),
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
            // Writing into a String cannot fail.
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
    fn numbers_of_usual_size_need_no_rearrangement() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            state >> 11
        };
        let whole = (0..10_000).map(|number| f64::from(number) * 1e11);
        let edges = [1e-4, 9.999e14, 1.0, 0.1, 123.0, 1e14].into_iter();
        let any = (0..200_000).map(|_| {
            let digits = random() as f64 / 2_f64.powi(53);
            (digits + 0.1) * 10_f64.powi((random() % 19) as i32 - 3)
        });
        for value in whole.chain(edges).chain(any).filter(|value| (1e-4..1e15).contains(value)) {
            let mut text = String::new();
            write_python_float(value, |part| text.push_str(part));
            assert_eq!(float(value), text);
            assert_eq!(float(-value), format!("-{text}"));
        }
    }

    #[test]
    fn texts_in_lists_have_pythons_quotes() {
        assert_eq!(list(["a", "it's", "a\"'b", "n\n"]), r#"['a', "it's", 'a"\'b', 'n\n']"#);
    }
}
