//! Parses `dump.json` in one pass, with one operator at a time in memory as JSON.

use std::borrow::Cow;
use std::path::Path;

use jiter::{Jiter, JiterError, JsonValue, Peek};

use super::document::{Document, Framework, Leaf, Operator, Peer, Plain, Section, Task, TensorFacts, Value};
use super::error::CaptureError;
use super::keys::{document as head, part, value as key};
use super::shared::Shared;

/// The number of characters shown of a file with other content.
const SHOWN: usize = 40;

/// Parses a `dump.json` or `debug.json`; `path` is named in errors. Time and memory are linear in the text.
///
/// # Errors
/// [`CaptureError::Syntax`] with the place of the syntax error, [`CaptureError::Unexpected`] for other JSON.
pub fn parse_document(text: &[u8], path: &Path) -> Result<Document, CaptureError> {
    let mut reader = Reader::new(text, path);
    let document = reader.document()?;
    let end = reader.json.finish();
    reader.well(end)?;
    Ok(document)
}

/// A description of a text that does not begin as JSON; `None` for one that does.
fn not_json(text: &[u8]) -> Option<String> {
    let text = text.trim_ascii_start();
    if text.starts_with(b"PK\x03\x04") {
        return Some("a zip archive, as `torch.save` writes it".to_owned());
    }
    let word = text.split(|byte| !byte.is_ascii_alphanumeric()).next().unwrap_or_default();
    let is_json = matches!(text.first(), None | Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9'))
        || matches!(word, b"true" | b"false" | b"null" | b"NaN" | b"Infinity");
    if is_json {
        return None;
    }
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // A character has at most four bytes.
    let line: String = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN)]).chars().take(SHOWN).collect();
    let is_text = !line.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER);
    Some(if is_text { format!("text that begins with {line:?}") } else { "binary data".to_owned() })
}

struct Reader<'j> {
    text: &'j [u8],
    json: Jiter<'j>,
    path: &'j Path,
    shared: Shared,
}

impl<'j> Reader<'j> {
    fn new(text: &'j [u8], path: &'j Path) -> Self {
        Self { text, json: Jiter::new(text).with_allow_inf_nan(), path, shared: Shared::default() }
    }

    fn document(&mut self) -> Result<Document, CaptureError> {
        let (mut task, mut level, mut framework, mut operators) = (None, None, Framework::PyTorch, None);
        let first = self.json.peek();
        if !matches!(first, Ok(Peek::Object)) {
            // For a file that is not JSON at all, the place of the syntax error is meaningless.
            if let Some(found) = not_json(self.text) {
                return Err(self.unexpected("(the whole file)", "a JSON object", &found));
            }
            self.well(first)?;
            return Err(self.unexpected("(the whole file)", "an object", "another type"));
        }
        let key = self.json.known_object().map(|key| key.map(str::to_owned));
        let mut key = self.well(key)?;
        while let Some(name) = key {
            match name.as_str() {
                head::TASK => task = Some(self.task()?),
                head::LEVEL => level = self.text()?,
                head::FRAMEWORK => framework = self.framework()?,
                head::DATA => operators = Some(self.operators()?),
                _ => {
                    let skipped = self.json.next_skip();
                    self.well(skipped)?;
                }
            }
            let next = self.json.next_key().map(|key| key.map(str::to_owned));
            key = self.well(next)?;
        }
        let operators = operators.ok_or_else(|| self.unexpected("data", "the operators", "no such key"))?;
        let task = task.ok_or_else(|| self.unexpected("task", "statistics, tensor or structure", "no such key"))?;
        Ok(Document { task, level, framework, operators })
    }

    fn task(&mut self) -> Result<Task, CaptureError> {
        let text = self.text()?;
        match text.as_deref() {
            // A capture that only checks for NaN has the form of statistics, without numbers.
            Some("statistics" | "nan_check" | "overflow_check") => Ok(Task::Statistics),
            Some("tensor") => Ok(Task::Tensor),
            Some("structure") => Ok(Task::Structure),
            other => Err(self.unexpected("task", "statistics, tensor or structure", other.unwrap_or("no text"))),
        }
    }

    fn framework(&mut self) -> Result<Framework, CaptureError> {
        let text = self.text()?;
        match text.as_deref() {
            Some("pytorch") | None => Ok(Framework::PyTorch),
            Some("mindspore") => Ok(Framework::MindSpore),
            Some("mindtorch") => Ok(Framework::MindTorch),
            Some(other) => Err(self.unexpected("framework", "pytorch, mindspore or mindtorch", other)),
        }
    }

    fn text(&mut self) -> Result<Option<Box<str>>, CaptureError> {
        let value = self.json.next_value();
        Ok(match self.well(value)? {
            JsonValue::Str(text) => Some(text.into()),
            _ => None,
        })
    }

    fn operators(&mut self) -> Result<Vec<Operator>, CaptureError> {
        let first = self.json.peek();
        if self.well(first)? != Peek::Object {
            return Err(self.unexpected("data", "an object of operators", "another type"));
        }
        let mut operators = Vec::new();
        let key = self.json.known_object().map(|key| key.map(Box::<str>::from));
        let mut key = self.well(key)?;
        while let Some(name) = key {
            let value = self.json.next_value();
            let value = self.well(value)?;
            let values = self.operator(&name, &value)?;
            operators.push(Operator { name, values });
            let next = self.json.next_key().map(|key| key.map(Box::<str>::from));
            key = self.well(next)?;
        }
        Ok(operators)
    }

    fn operator(&mut self, name: &str, json: &JsonValue<'j>) -> Result<Vec<Value>, CaptureError> {
        let shared = &mut self.shared;
        // A saved value (debug.json) is the value itself.
        if name.contains(part::SAVED) && !has_sections(json) {
            let mut leaves = Leaves::of(Section::Saved, shared);
            leaves.walk(json);
            return Ok(leaves.values);
        }
        let JsonValue::Object(parts) = json else {
            return Err(self.unexpected(name, "an object with inputs and outputs", kind_of(json)));
        };
        let mut ends = name.rsplit('.');
        if ends.next() == Some(part::PARAMETERS_GRAD) || ends.next() == Some(part::PARAMETERS_GRAD) {
            let mut leaves = Leaves::of(Section::ParameterGradient, shared);
            for (parameter, gradient) in parts.iter() {
                leaves.inside(parameter, |leaves| match gradient {
                    JsonValue::Array(list) if list.len() == 1 => leaves.walk(&list[0]),
                    other => leaves.walk(other),
                });
            }
            return Ok(leaves.values);
        }
        let mut leaves = Leaves::of(Section::Input, shared);
        for (name, content) in parts.iter() {
            let (section, prefix) = match &**name {
                part::INPUT_ARGS | part::INPUT_KWARGS | part::INPUT => (Section::Input, part::INPUT),
                part::PARAMETERS => (Section::Parameter, part::PARAMETERS),
                part::OUTPUT => (Section::Output, part::OUTPUT),
                // `is_recompute`, `is_nan`: facts about the call, not values.
                _ => continue,
            };
            leaves.section = section;
            leaves.inside(prefix, |leaves| leaves.walk(content));
        }
        let mut values = leaves.values;
        values.sort_by_key(|value| value.section);
        Ok(values)
    }

    fn well<T>(&self, result: Result<T, JiterError>) -> Result<T, CaptureError> {
        result.map_err(|error| CaptureError::of_json(&error, &self.json, self.path))
    }

    fn unexpected(&self, key: &str, expected: &'static str, found: &str) -> CaptureError {
        CaptureError::Unexpected {
            path: self.path.to_path_buf(),
            key: key.to_owned(),
            expected,
            found: found.to_owned(),
        }
    }
}

fn has_sections(json: &JsonValue<'_>) -> bool {
    let JsonValue::Object(parts) = json else { return false };
    parts.iter().any(|(key, _)| matches!(&**key, part::INPUT_ARGS | part::INPUT | part::OUTPUT))
}

fn kind_of(json: &JsonValue<'_>) -> &'static str {
    match json {
        JsonValue::Null => "null",
        JsonValue::Bool(_) => "a boolean",
        JsonValue::Str(_) => "a text",
        JsonValue::Array(_) => "a list",
        JsonValue::Object(_) => "an object",
        _ => "a number",
    }
}

/// Collects the leaves of nested lists and objects with their places.
struct Leaves<'s> {
    section: Section,
    values: Vec<Value>,
    place: String,
    shared: &'s mut Shared,
}

impl<'s> Leaves<'s> {
    fn of(section: Section, shared: &'s mut Shared) -> Self {
        Self { section, values: Vec::new(), place: String::new(), shared }
    }

    /// The parser limits the depth to 200, so this recursion is limited too.
    fn walk(&mut self, json: &JsonValue<'_>) {
        match json {
            JsonValue::Object(fields) => {
                if let Some(leaf) = leaf(fields, self.shared) {
                    self.push(leaf);
                } else {
                    for (key, value) in fields.iter() {
                        self.inside(key, |leaves| leaves.walk(value));
                    }
                }
            }
            JsonValue::Array(items) => {
                let mut digits = itoa::Buffer::new();
                for (index, item) in items.iter().enumerate() {
                    self.inside(digits.format(index), |leaves| leaves.walk(item));
                }
            }
            _ => self.push(Leaf::Nothing),
        }
    }

    fn inside(&mut self, key: &str, walk: impl FnOnce(&mut Self)) {
        let length = self.place.len();
        self.place.push('.');
        self.place.push_str(key);
        walk(self);
        self.place.truncate(length);
    }

    fn push(&mut self, leaf: Leaf) {
        let place = self.shared.text(&self.place);
        self.values.push(Value { section: self.section, place, leaf });
    }
}

type Fields<'j> = [(Cow<'j, str>, JsonValue<'j>)];

fn field<'f, 'j>(fields: &'f Fields<'j>, name: &str) -> Option<&'f JsonValue<'j>> {
    fields.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The leaf that an object describes; `None` if it is a container.
fn leaf(fields: &Fields<'_>, shared: &mut Shared) -> Option<Leaf> {
    if let Some(JsonValue::Object(tensor)) = field(fields, key::TENSOR)
        && field(fields, key::CLASS_TYPE).is_some()
    {
        let plain = |name| field(fields, name).map_or(Plain::Null, plain);
        let peer = Peer {
            operation: plain(key::OPERATION),
            rank: plain(key::PEER),
            tag: plain(key::TAG),
            group_id: plain(key::GROUP_ID),
        };
        return leaf(tensor, shared).map(|leaf| match leaf {
            Leaf::Tensor(facts) => Leaf::Tensor(Box::new(TensorFacts { peer: Some(Box::new(peer)), ..*facts })),
            other => other,
        });
    }
    let Some(JsonValue::Str(kind)) = field(fields, key::TYPE) else { return None };
    if let Some(ranks) = field(fields, key::GROUP_RANKS) {
        let id = field(fields, key::GROUP_ID).and_then(text);
        return Some(Leaf::Group { ranks: plain(ranks), id });
    }
    if field(fields, key::DTYPE).is_some() && field(fields, key::SHAPE).is_some() {
        return Some(Leaf::Tensor(Box::new(tensor(kind, fields, shared))));
    }
    Some(Leaf::Plain { kind: (&**kind).into(), value: field(fields, key::VALUE).map_or(Plain::Null, plain) })
}

fn tensor(kind: &str, fields: &Fields<'_>, shared: &mut Shared) -> TensorFacts {
    let plain_at = |name| field(fields, name).map_or(Plain::Null, plain);
    TensorFacts {
        kind: shared.text(kind),
        dtype: shared.plain(plain_at(key::DTYPE)),
        shape: shared.plain(plain_at(key::SHAPE)),
        statistics: key::STATISTICS.map(plain_at),
        requires_grad: match field(fields, key::REQUIRES_GRAD) {
            Some(JsonValue::Bool(value)) => Some(*value),
            _ => None,
        },
        is_shard: field(fields, key::PLACEMENTS).is_some_and(is_sharded),
        is_from_empty: matches!(field(fields, key::FROM_EMPTY), Some(JsonValue::Bool(true))),
        is_unwritten: false,
        data_name: field(fields, key::DATA_NAME).and_then(text),
        digest: field(fields, key::DIGEST).map(plain),
        peer: None,
    }
}

/// Whether placements, a list of `{"Shard": {"dim": 0}}` and `{"Replicate": {}}`, put a part of the tensor on each
/// rank.
fn is_sharded(placements: &JsonValue<'_>) -> bool {
    let JsonValue::Array(list) = placements else { return false };
    let is_shard = |key: &str| key.contains("Shard");
    list.iter().any(|placement| match placement {
        JsonValue::Object(fields) => fields.iter().any(|(key, _)| is_shard(key)),
        JsonValue::Str(text) => is_shard(text),
        _ => false,
    })
}

fn text(json: &JsonValue<'_>) -> Option<Box<str>> {
    if let JsonValue::Str(text) = json { Some((&**text).into()) } else { None }
}

/// Converts a plain value. Objects inside plain values become null; no writer produces them.
fn plain(json: &JsonValue<'_>) -> Plain {
    match json {
        JsonValue::Null | JsonValue::Object(_) => Plain::Null,
        JsonValue::Bool(value) => Plain::Bool(*value),
        JsonValue::Int(value) => Plain::Int(*value),
        JsonValue::BigInt(value) => Plain::Big(value.to_string().into()),
        JsonValue::Float(value) => Plain::Float(*value),
        JsonValue::Str(text) => Plain::Text((&**text).into()),
        JsonValue::Array(items) => Plain::List(items.iter().map(plain).collect()),
    }
}

/// A JSON value as written in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// A value that is not a container.
    Plain(Plain),
    /// A list.
    List(Vec<Json>),
    /// An object, its keys in order.
    Object(Vec<(Box<str>, Json)>),
}

/// One operator's values as written in a `dump.json`; `None` if it is not in the file.
///
/// # Errors
/// See [`parse_document`].
pub fn operator_json(text: &[u8], path: &Path, operator: &str) -> Result<Option<Json>, CaptureError> {
    let mut reader = Reader::new(text, path);
    let key = reader.json.next_object().map(|key| key.map(str::to_owned));
    let mut key = reader.well(key)?;
    while let Some(name) = key {
        if name == head::DATA {
            let first = reader.json.next_object().map(|key| key.map(str::to_owned));
            let mut inner = reader.well(first)?;
            while let Some(name) = inner {
                if name == operator {
                    let value = reader.json.next_value();
                    return Ok(Some(json(&reader.well(value)?)));
                }
                let next =
                    reader.json.next_skip().and_then(|()| reader.json.next_key()).map(|key| key.map(str::to_owned));
                inner = reader.well(next)?;
            }
            return Ok(None);
        }
        let next = reader.json.next_skip().and_then(|()| reader.json.next_key()).map(|key| key.map(str::to_owned));
        key = reader.well(next)?;
    }
    Ok(None)
}

fn json(value: &JsonValue<'_>) -> Json {
    match value {
        JsonValue::Array(items) => Json::List(items.iter().map(json).collect()),
        JsonValue::Object(fields) => {
            Json::Object(fields.iter().map(|(key, value)| ((&**key).into(), json(value))).collect())
        }
        other => Json::Plain(plain(other)),
    }
}
