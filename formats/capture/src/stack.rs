//! `stack.json`: the call stacks of forward calls.

use std::collections::HashMap;
use std::path::Path;

use jiter::{Jiter, JsonValue};

use super::error::CaptureError;
use super::shared::Hashes;

/// The call stacks of a rank's operators, innermost frame first.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    frames: Vec<Box<[Box<str>]>>,
    of: HashMap<Box<str>, usize, Hashes>,
}

impl Stacks {
    /// The frames of an operator's call, if recorded (forward calls only).
    pub fn of(&self, operator: &str) -> Option<&[Box<str>]> {
        self.group_of(operator).and_then(|index| self.frames.get(index)).map(|frames| &**frames)
    }

    /// The index in [`Self::groups`] of an operator's frames: calls from one place share them.
    pub fn group_of(&self, operator: &str) -> Option<usize> {
        self.of.get(operator).copied()
    }

    /// The frames of all calls, each once, in file order.
    pub fn groups(&self) -> impl Iterator<Item = &[Box<str>]> {
        self.frames.iter().map(|frames| &**frames)
    }

    /// Whether there are no call stacks.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Parses a `stack.json`: `{"0": [[names], [frames]]}`, or the older `{name: [frames]}`.
    ///
    /// # Errors
    /// [`CaptureError::Syntax`], or [`CaptureError::Unexpected`] for other JSON.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self, CaptureError> {
        let JsonValue::Object(entries) = whole(text, path)? else {
            return Err(unexpected(path, "(the whole file)"));
        };
        let mut stacks = Self::default();
        let is_old = !entries.iter().any(|(key, _)| key == "0");
        for (key, entry) in entries.iter() {
            let (names, frames) = match entry {
                JsonValue::Array(list) if is_old => (vec![&**key], texts(list)),
                JsonValue::Array(pair) => match &pair[..] {
                    [JsonValue::Array(names), JsonValue::Array(frames)] => (texts(names), texts(frames)),
                    _ => return Err(unexpected(path, key)),
                },
                _ => return Err(unexpected(path, key)),
            };
            let index = stacks.frames.len();
            stacks.frames.push(frames.into_iter().map(Box::from).collect());
            stacks.of.extend(names.into_iter().map(|name| (Box::from(name), index)));
        }
        Ok(stacks)
    }
}

fn texts<'v>(list: &'v [JsonValue<'_>]) -> Vec<&'v str> {
    list.iter().filter_map(|item| if let JsonValue::Str(text) = item { Some(&**text) } else { None }).collect()
}

fn unexpected(path: &Path, key: &str) -> CaptureError {
    CaptureError::Unexpected {
        path: path.to_path_buf(),
        key: key.to_owned(),
        expected: "operators' names and their frames",
        found: "another structure".to_owned(),
    }
}

/// Parses a small JSON file completely.
pub(super) fn whole<'t>(text: &'t [u8], path: &Path) -> Result<JsonValue<'t>, CaptureError> {
    let mut json = Jiter::new(text).with_allow_inf_nan();
    let value = json.next_value().and_then(|value| json.finish().map(|()| value));
    value.map_err(|error| CaptureError::of_json(&error, &json, path))
}
