//! Text in the cells of CSV files, which people open with spreadsheet programs.
//!
//! A cell that begins with `=`, `+`, `-` or `@` is a formula to these, and a name may begin so. One space before it makes it
//! text, which is how msprobe marks text that is not to be read as something else; its `merge_result` takes it away again.

use std::borrow::Cow;

/// What a formula begins with, in any script, and what spreadsheet programs leave out before one.
const BEGINNINGS: [char; 10] = ['=', '+', '-', '@', '＝', '＋', '－', '＠', '\t', '\r'];

/// A name or another text as it stands in a cell: with a space before what would be a formula. Numbers (`-1.5`, `-inf`,
/// `-12.5%`) stay as they are, and so does a single sign. Borrowed as a rule. Cost: one look at the first letters.
pub fn cell_of(text: &str) -> Cow<'_, str> {
    if is_formula(text.trim_start_matches(' ')) { Cow::Owned(format!(" {text}")) } else { Cow::Borrowed(text) }
}

/// The text of a cell that [`cell_of`] wrote.
pub fn text_of_cell(cell: &str) -> &str {
    match cell.strip_prefix(' ') {
        Some(text) if is_formula(text.trim_start_matches(' ')) => text,
        _ => cell,
    }
}

fn is_formula(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| BEGINNINGS.contains(&first)) && letters.next().is_some() && !is_number(text)
}

fn is_number(text: &str) -> bool {
    text.strip_suffix('%').unwrap_or(text).parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_is_text_and_is_read_back_as_it_was() {
        for text in ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "＝1+1", "=", "--x", " =1", "  =1"] {
            let cell = cell_of(text);
            let is_marked = text != "=";
            assert_eq!(cell.len(), text.len() + usize::from(is_marked), "{text:?}");
            assert_eq!(text_of_cell(&cell), text);
        }
    }

    #[test]
    fn numbers_and_other_names_stay_as_they_are() {
        for text in ["", "-", "-1.5", "+1e-3", "-inf", "-nan", "-12.5%", "layers.0.weight", " a", "a=b", "'=1"] {
            assert_eq!(cell_of(text), text);
            assert_eq!(text_of_cell(text), text);
        }
    }
}
