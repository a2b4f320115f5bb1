//! The common envelope of every comparison's JSON.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::failure::{Advise, as_json};

/// The version of the JSON that comparisons print. From the first release on, it increases when a key is removed or
/// changes its meaning.
const VERSION: u32 = 1;

/// The keys `version`, `compared` (captures, runs, checkpoints), the keys of the answer itself, `files` (the written
/// ones) and `error`. For a failed comparison, `answer` holds the keys of an empty answer.
pub fn comparison_as_json(compared: &str, answer: Value, written: Result<&[PathBuf], &impl Advise>) -> Value {
    let mut json = answer_as_json(compared, answer);
    json["files"] = json!(written.unwrap_or_default());
    json["error"] = written.err().map_or(Value::Null, as_json);
    json
}

/// The keys `version`, `compared` and those of the answer itself: the JSON that a comparison writes to a file.
pub fn answer_as_json(compared: &str, answer: Value) -> Value {
    let mut json = json!({"version": VERSION, "compared": compared});
    if let (Some(json), Value::Object(answer)) = (json.as_object_mut(), answer) {
        json.extend(answer);
    }
    json
}
