//! What the JSON of every comparison has around its answer.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::failure::{Advise, as_json};

/// The version of the JSON that comparisons print. From the first release on it rises where a key is taken away or means
/// something else.
const VERSION: u32 = 1;

/// `version`, `compared` (captures, runs, checkpoints), the keys of the answer itself, `files` (those written) and `error`.
/// Of a comparison that failed, `answer` says what its keys are then.
pub fn comparison_as_json(compared: &str, answer: Value, written: Result<&[PathBuf], &impl Advise>) -> Value {
    let mut json = answer_as_json(compared, answer);
    json["files"] = json!(written.unwrap_or_default());
    json["error"] = written.err().map_or(Value::Null, as_json);
    json
}

/// `version`, `compared` and the keys of the answer itself: the JSON that a comparison writes into a file.
pub fn answer_as_json(compared: &str, answer: Value) -> Value {
    let mut json = json!({"version": VERSION, "compared": compared});
    if let (Some(json), Value::Object(answer)) = (json.as_object_mut(), answer) {
        json.extend(answer);
    }
    json
}
