//! Prints the line of an error with a caret below it.

/// The largest number of characters shown of a line: a config may be one long line.
const MAX_SHOWN_CHARS: usize = 100;
/// The number of characters shown before the error in a shortened line.
const CHARS_BEFORE: usize = 50;

/// The line `line` (from 1) of `text` with a caret at `column` (from 1, in characters); empty if the line does not
/// exist.
pub(crate) fn excerpt(text: &str, line: usize, column: usize) -> String {
    let Some(shown) = text.lines().nth(line.saturating_sub(1)) else {
        return String::new();
    };
    let length = shown.chars().count();
    let at = column.saturating_sub(1).min(length);
    let (start, lead) =
        if length <= MAX_SHOWN_CHARS || at <= CHARS_BEFORE { (0, "") } else { (at - CHARS_BEFORE, "…") };
    let window: String = shown.chars().skip(start).take(MAX_SHOWN_CHARS).map(visible).collect();
    let trail = if start + MAX_SHOWN_CHARS < length { "…" } else { "" };
    let margin = " ".repeat(line.to_string().len());
    let indent = " ".repeat(at - start + lead.chars().count());
    format!("{margin} |\n{line} | {lead}{window}{trail}\n{margin} | {indent}^\n")
}

/// Replaces tabs and control characters, which would move the caret or affect the terminal.
fn visible(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_below_the_column() {
        assert_eq!(excerpt("{\n\t\"é\": 1\n}", 2, 7), "  |\n2 |  \"é\": 1\n  |       ^\n");
    }

    #[test]
    fn a_long_line_is_cut_around_the_fault() {
        let text = format!("{}X{}", "a".repeat(200), "b".repeat(200));
        let shown = excerpt(&text, 1, 201);
        let expected = format!("  |\n1 | …{}X{}…\n  | {}^\n", "a".repeat(50), "b".repeat(49), " ".repeat(51));
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_fault_at_the_end_of_the_text_has_a_place() {
        assert_eq!(excerpt("{", 1, 2), "  |\n1 | {\n  |  ^\n");
        assert_eq!(excerpt("", 1, 1), "");
    }
}
