//! Text in the cells of CSV files, which people open with spreadsheet programs.
//!
//! Spreadsheet programs read a cell that begins with `=`, `+`, `-` or `@` as a formula, and a name may begin with one. A leading
//! space makes it text. msprobe marks text in the same way, and its `merge_result` removes the space.

use std::borrow::Cow;

/// The characters that begin a formula in any script, and those that spreadsheet programs skip before one.
const BEGINNINGS: [char; 10] = ['=', '+', '-', '@', '＝', '＋', '－', '＠', '\t', '\r'];

/// A name or another text as a cell: a space comes before a formula. Numbers (`-1.5`, `-inf`, `-12.5%`) and a single sign are
/// unchanged. Usually borrowed. Cost: one look at the first letters.
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
