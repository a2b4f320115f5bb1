//! An error with its causes, as text and as JSON.

use std::error::Error;

use serde::Serialize;
use serde_json::{Value, json};

/// An error with a hint.
pub trait Advise: Error {
    /// The text of the `hint:` line: what to do about the error.
    fn hint(&self) -> &str;
}

/// The causes of an error, the nearest first.
pub fn causes(failure: &dyn Error) -> Vec<String> {
    std::iter::successors(failure.source(), |&cause| cause.source()).map(ToString::to_string).collect()
}

/// An error as commands print it with `--json`: `message`, `causes`, `hint`.
pub fn as_json(failure: &impl Advise) -> Value {
    json!({"message": failure.to_string(), "causes": causes(failure), "hint": failure.hint()})
}

/// The result of a command as printed with `--json`: `ok`, its own fields, `error`. `failed` holds the fields of a
/// failed command.
pub fn result_as_json<T: Serialize>(result: &Result<T, impl Advise>, failed: Value) -> Value {
    let mut json = json!({"ok": result.is_ok()});
    // A path that is not UTF-8 cannot be serialized: `ok` is printed nevertheless.
    let fields = result.as_ref().map_or(failed, |done| serde_json::to_value(done).unwrap_or_default());
    if let (Some(json), Value::Object(fields)) = (json.as_object_mut(), fields) {
        json.extend(fields);
    }
    json["error"] = result.as_ref().err().map_or(Value::Null, as_json);
    json
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

    impl Advise for Outer {
        fn hint(&self) -> &'static str {
            "wait"
        }
    }

    #[test]
    fn every_cause_is_told_and_the_failure_itself_is_none_of_them() {
        let failure = Outer(Inner(io::Error::other("disk")));
        assert_eq!(as_json(&failure), json!({"message": "outer", "causes": ["inner", "disk"], "hint": "wait"}));
    }
}
