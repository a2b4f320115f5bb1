//! Formatting of an error on one line.

/// An error and its causes, outermost first. A cause whose text the wrapping error already contains is skipped.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn causes_follow_and_none_is_said_twice() {
        let root = Layer("connection refused", None);
        let repeating = Layer("tcp: connection refused", Some(Box::new(root)));
        let outer = Layer("cannot send", Some(Box::new(repeating)));
        assert_eq!(with_causes(&outer), "cannot send: tcp: connection refused");
    }
}
