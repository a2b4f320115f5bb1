//! Makes text safe for messages on a terminal or in a log.

use std::borrow::Cow;

/// The maximum number of letters quoted in a message.
const MOST_QUOTED: usize = 200;
/// The maximum length of a quoted path.
const LONGEST_PATH: usize = 4096;
/// The maximum length of a path's component.
const LONGEST_PART: usize = 255;

/// Returns a message with unsafe quotations made harmless. Control characters are escaped: a name may hold a line feed or a
/// terminal's cursor sequence. Quotations are cut after 200 letters, paths after 4096.
///
/// Line feeds outside backticks are kept. Usually borrowed. Cost: one pass.
pub fn printable(message: &str) -> Cow<'_, str> {
    let has_control = message.chars().any(|letter| letter.is_control() && letter != '\n');
    let has_quoted_line = || message.split('`').skip(1).step_by(2).any(|quoted| quoted.contains('\n'));
    if message.len() <= MOST_QUOTED && !has_control && !has_quoted_line() {
        return Cow::Borrowed(message);
    }
    let mut shown = String::with_capacity(message.len().min(LONGEST_PATH));
    for (place, part) in message.split('`').enumerate() {
        if place > 0 {
            shown.push('`');
        }
        let is_quoted = place % 2 == 1;
        if is_quoted {
            cut(part, &mut shown, true);
        } else {
            // Text outside backticks is cut by words.
            for word in part.split_inclusive([' ', '\n']) {
                cut(word, &mut shown, false);
            }
        }
    }
    if shown == message { Cow::Borrowed(message) } else { Cow::Owned(shown) }
}

fn cut(part: &str, shown: &mut String, is_quoted: bool) {
    let is_path = part.contains('/') && part.split('/').all(|name| name.len() <= LONGEST_PART);
    let most = if is_path { LONGEST_PATH } else { MOST_QUOTED };
    let mut letters = part.chars();
    for letter in letters.by_ref().take(most) {
        if letter.is_control() && (is_quoted || letter != '\n') {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    if letters.next().is_some() {
        shown.push('…');
        // The separator from the next word.
        shown.extend(part.chars().next_back().filter(|last| !is_quoted && [' ', '\n'].contains(last)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_message_is_left_as_it_is() {
        let usual = "`a.weight` of `/runs/a b`: expected a number, found \"é\"\n  hint: look\tat it";
        assert_eq!(printable("`a`: fine\n  second line"), "`a`: fine\n  second line");
        assert!(matches!(printable("`a`: fine\n  second line"), Cow::Borrowed(_)));
        assert_eq!(printable(usual), usual.replace('\t', "\\t"));
        let long = format!("`{}` has no rows, {}", format!("/{}", "d".repeat(200)).repeat(9), "word ".repeat(200));
        assert!(matches!(printable(&long), Cow::Borrowed(_)), "a long path and a long sentence");
    }

    #[test]
    fn names_cannot_begin_a_line_or_move_the_cursor() {
        assert_eq!(printable("module `a\n  hint: rm -rf` left out"), "module `a\\n  hint: rm -rf` left out");
        assert_eq!(printable("name \u{1b}[2Jx\r\u{7}"), "name \\u{1b}[2Jx\\r\\u{7}");
    }

    #[test]
    fn what_is_quoted_is_cut() {
        let long = "x".repeat(1 << 20);
        let cut = format!("{}…", "x".repeat(200));
        assert_eq!(printable(&format!("`{long}`: unknown")), format!("`{cut}`: unknown"));
        assert_eq!(printable(&format!("found {long} here\nnext")), format!("found {cut} here\nnext"));
        assert_eq!(printable(&format!("found {long}\nnext")), format!("found {cut}\nnext"));
        assert_eq!(printable(&format!("`a/{long}`")), format!("`a/{}…`", "x".repeat(198)));
    }
}
