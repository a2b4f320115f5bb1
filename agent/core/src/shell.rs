//! Commands that a user is shown.

use std::borrow::Cow;

/// A text as one word of a shell's command, quoted where it has to be. A NUL, which no argument can have, stays.
///
/// ```
/// assert_eq!(trainmon_core::shell_word("runs/latest"), "runs/latest");
/// assert_eq!(trainmon_core::shell_word("my runs"), "'my runs'");
/// ```
pub fn shell_word(text: &str) -> Cow<'_, str> {
    shlex::Quoter::new().allow_nul(true).quote(text).unwrap_or(Cow::Borrowed(text))
}
