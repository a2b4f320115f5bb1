//! A failure with its causes, for people and as JSON.

use std::error::Error;

use serde_json::{Value, json};

/// What led to a failure, the nearest cause first.
pub(crate) fn causes(failure: &dyn Error) -> Vec<String> {
    std::iter::successors(failure.source(), |&cause| cause.source()).map(ToString::to_string).collect()
}

/// A failure as the verbs print it with `--json`: `message`, `causes`, `hint`.
pub(crate) fn as_json(failure: &dyn Error, hint: &str) -> Value {
    json!({"message": failure.to_string(), "causes": causes(failure), "hint": hint})
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner(#[source] io::Error);

    #[test]
    fn every_cause_is_told_and_the_failure_itself_is_none_of_them() {
        let failure = Outer(Inner(io::Error::other("disk")));
        assert_eq!(as_json(&failure, "wait"), json!({"message": "outer", "causes": ["inner", "disk"], "hint": "wait"}));
    }
}
