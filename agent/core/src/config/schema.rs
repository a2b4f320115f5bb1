//! The JSON Schema of the config file, and how the checks read it.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::capture::CaptureFile;
use super::effective::Dialect;
use super::file::{V1File, V2File};
use super::on_demand::CaptureRequest;
use super::plan::PlanChange;

/// The JSON Schema of a config file, of a monitor in either dialect or of a capture: draft 2020-12, generated from the types the file is read into.
///
/// Beside the standard keywords it carries the `x-` marks described at the types.
///
/// Built on the first call.
pub fn json_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(generate);
    &SCHEMA
}

fn generate() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let v1 = generator.subschema_for::<V1File>().to_value();
    let v2 = generator.subschema_for::<V2File>().to_value();
    let capture = generator.subschema_for::<CaptureFile>().to_value();
    let definitions = generator.take_definitions(true);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "trainmon config",
        "description": "A `task` key makes it the config of a capture, a `monitors` or `framework` key a TrainerMonitorV2 config, anything else a TrainerMon config.",
        "if": { "required": ["task"] },
        "then": capture,
        "else": {
            "if": { "anyOf": [{ "required": ["monitors"] }, { "required": ["framework"] }] },
            "then": v2,
            "else": v1,
        },
        "$defs": definitions,
    })
}

/// The JSON Schema of a change of the plan.
///
/// Built on the first call.
pub(super) fn change_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<PlanChange>().to_value()
    });
    &SCHEMA
}

/// The JSON Schema of a request for a capture.
///
/// Built on the first call.
pub(super) fn capture_request_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<CaptureRequest>().to_value()
    });
    &SCHEMA
}

/// A schema, with the document that its references point into.
#[derive(Clone, Copy)]
pub(super) struct SchemaNode<'a> {
    document: &'a Value,
    node: &'a Value,
}

impl<'a> SchemaNode<'a> {
    /// The schema of a dialect's whole file.
    pub(super) fn of_file(document: &'a Value, dialect: Dialect) -> Self {
        let branch = match dialect {
            Dialect::V1 => "else",
            Dialect::V2 => "then",
        };
        Self { document, node: &document["else"][branch] }
    }

    /// The schema of a capture's file.
    pub(super) fn of_capture(document: &'a Value) -> Self {
        Self { document, node: &document["then"] }
    }

    /// A document that is one schema.
    pub(super) fn whole(document: &'a Value) -> Self {
        Self { document, node: document }
    }

    fn with(self, node: &'a Value) -> Self {
        Self { node, ..self }
    }

    /// A mark or keyword at this place; references are not followed.
    pub(super) fn mark(self, name: &str) -> Option<&'a Value> {
        self.node.get(name)
    }

    pub(super) fn hint(self) -> Option<&'a str> {
        self.mark("x-hint")?.as_str()
    }

    pub(super) fn is_not_implemented(self) -> bool {
        self.mark("x-not-implemented").is_some_and(|mark| mark == &Value::Bool(true))
    }

    /// The forms a value may take: references followed, `anyOf` and `oneOf` flattened.
    pub(super) fn forms(self) -> Vec<Self> {
        if let Some(reference) = self.node.get("$ref").and_then(Value::as_str) {
            let target = self.document.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null);
            return self.with(target).forms();
        }
        let choices = self.node.get("anyOf").or_else(|| self.node.get("oneOf")).and_then(Value::as_array);
        match choices {
            Some(choices) => choices.iter().flat_map(|choice| self.with(choice).forms()).collect(),
            None => vec![self],
        }
    }

    /// Whether this form takes a value of that JSON type (`integer` counts as `number`).
    pub(super) fn takes(self, json_type: &str) -> bool {
        let matches = |name: &Value| {
            name.as_str().is_some_and(|name| name == json_type || (name == "integer" && json_type == "number"))
        };
        match self.node.get("type") {
            None => true,
            Some(Value::Array(names)) => names.iter().any(matches),
            Some(name) => matches(name),
        }
    }

    pub(super) fn is_integer(self) -> bool {
        let is_integer = |name: &Value| name.as_str() == Some("integer");
        match self.node.get("type") {
            Some(Value::Array(names)) => names.iter().any(is_integer),
            Some(name) => is_integer(name),
            None => false,
        }
    }

    /// The words that this form allows; none if it takes any text.
    pub(super) fn words(self) -> Vec<&'a str> {
        if let Some(word) = self.node.get("const").and_then(Value::as_str) {
            return vec![word];
        }
        let listed = self.node.get("enum").and_then(Value::as_array);
        listed.map(|words| words.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
    }

    /// The smallest and the largest number.
    pub(super) fn bounds(self) -> (Option<f64>, Option<f64>) {
        let format_maximum = match self.node.get("format").and_then(Value::as_str) {
            Some("uint8") => Some(f64::from(u8::MAX)),
            Some("uint16") => Some(f64::from(u16::MAX)),
            Some("uint32") => Some(f64::from(u32::MAX)),
            Some("uint64" | "uint") => Some(u64::MAX as f64),
            _ => None,
        };
        let number = |name| self.node.get(name).and_then(Value::as_f64);
        (number("minimum"), number("maximum").or(format_maximum))
    }

    pub(super) fn min_length(self) -> usize {
        self.node.get("minLength").and_then(Value::as_u64).unwrap_or(0) as usize
    }

    pub(super) fn format(self) -> Option<&'a str> {
        self.node.get("format").and_then(Value::as_str)
    }

    pub(super) fn items(self) -> Option<Self> {
        self.node.get("items").map(|items| self.with(items))
    }

    pub(super) fn property(self, name: &str) -> Option<Self> {
        self.node.get("properties")?.get(name).map(|property| self.with(property))
    }

    pub(super) fn property_names(self) -> Vec<&'a str> {
        let properties = self.node.get("properties").and_then(Value::as_object);
        properties.map(|properties| properties.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    pub(super) fn required(self) -> Vec<&'a str> {
        let required = self.node.get("required").and_then(Value::as_array);
        required.map(|names| names.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
    }

    /// The schema of keys that are not listed; `None` if none are allowed.
    pub(super) fn other_properties(self) -> Option<Self> {
        match self.node.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(schema) => Some(self.with(schema)),
            None => Some(self.with(&Value::Null)),
        }
    }

    /// A description of a valid value, for messages.
    pub(super) fn describe(self) -> String {
        let forms = self.forms();
        let choices = forms.iter().filter(|form| !form.is_not_implemented());
        let words: Vec<String> = choices.flat_map(|form| form.words()).map(|word| format!("`{word}`")).collect();
        let mut parts = Vec::new();
        match words.as_slice() {
            [] => {}
            [only] => parts.push(only.clone()),
            several => parts.push(format!("one of {}", several.join(", "))),
        }
        parts.extend(forms.iter().filter(|form| form.words().is_empty()).filter_map(|form| form.describe_form()));
        if parts.is_empty() { "a value".to_owned() } else { parts.join(", or ") }
    }

    fn describe_form(self) -> Option<String> {
        let names: Vec<&str> = match self.node.get("type")? {
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            name => name.as_str().into_iter().collect(),
        };
        let name = names.into_iter().find(|name| *name != "null")?;
        Some(match name {
            "boolean" => "true or false".to_owned(),
            "integer" => self.describe_number("an integer"),
            "number" => self.describe_number("a number"),
            "string" => match (self.format(), self.min_length()) {
                (Some("ip"), _) => "an IP address".to_owned(),
                (_, 1..) => "text that is not empty".to_owned(),
                _ => "text in quotes".to_owned(),
            },
            "array" => match self.items() {
                Some(items) => format!("a list, each entry {}", items.describe()),
                None => "a list".to_owned(),
            },
            _ => "an object in braces".to_owned(),
        })
    }

    fn describe_number(self, noun: &str) -> String {
        // The largest number of a 32- or 64-bit key needs no mention.
        match self.bounds() {
            (Some(minimum), Some(maximum)) if maximum < f64::from(u32::MAX) => {
                format!("{noun} from {minimum} to {maximum}")
            }
            (Some(minimum), _) => format!("{noun} of at least {minimum}"),
            _ => noun.to_owned(),
        }
    }
}
