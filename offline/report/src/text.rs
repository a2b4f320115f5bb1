//! Text helpers: lists of names, quotes, counts.

/// The names as `a, b and 3 more`: at most `shown` of them.
pub fn first_of(names: impl ExactSizeIterator<Item: Into<String>>, shown: usize) -> String {
    let more = names.len().saturating_sub(shown);
    let shown: Vec<String> = names.take(shown).map(Into::into).collect();
    shown.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// A name in backticks.
pub fn quoted(name: impl std::fmt::Display) -> String {
    format!("`{name}`")
}

/// A number with its noun in singular or plural: `1 alert`, `2 alerts`.
pub fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        let names = ["a", "b", "c"];
        assert_eq!(first_of(names.iter().copied(), 3), "a, b, c");
        assert_eq!(first_of(names.iter().map(quoted), 1), "`a` and 2 more");
        assert_eq!(first_of(std::iter::empty::<String>(), 2), "");
    }
}
