//! Commands that trainmon shows to the user.

use std::borrow::Cow;

/// Quotes a text as one word of a shell command, if needed. A NUL, which no argument can contain, is kept.
///
/// ```
/// assert_eq!(trainmon_core::shell_word("runs/latest"), "runs/latest");
/// assert_eq!(trainmon_core::shell_word("my runs"), "'my runs'");
/// ```
pub fn shell_word(text: &str) -> Cow<'_, str> {
    shlex::Quoter::new().allow_nul(true).quote(text).unwrap_or(Cow::Borrowed(text))
}
