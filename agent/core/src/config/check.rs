//! Checks a syntax tree against the schema, finds every fault and keeps the rest as plain JSON.

use jsonc_parser::ast::{Array, NumberLit, Object, ObjectProp, StringLit, Value as Node};
use jsonc_parser::common::Ranged;
use serde_json::{Map, Number, Value};

use super::diagnostic::DiagnosticKind as Kind;
use super::report::{Fault, Reader, Report, join};
use super::schema::SchemaNode;
use super::similar::did_you_mean;
use super::source;

/// The length at which messages cut quoted text.
const MAX_QUOTED_CHARS: usize = 40;

/// Walks the tree and the schema together.
pub(super) struct Checker<'r, 'a, 's> {
    pub(super) report: &'r mut Report<'a>,
    /// The keys of the other dialect's outermost object.
    pub(super) other_dialect_keys: Vec<&'s str>,
}

impl Checker<'_, '_, '_> {
    /// The value as plain JSON without the parts that caused warnings; `None` if it is wrong.
    pub(super) fn check(&mut self, schema: SchemaNode<'_>, node: &Node<'_>, key: &str) -> Option<Value> {
        let json_type = type_of(node);
        let forms: Vec<SchemaNode<'_>> = schema.forms().into_iter().filter(|form| form.takes(json_type)).collect();
        let Some(&form) = forms.first() else {
            if schema.mark("x-secret").is_some() {
                let fault = Fault::new(Kind::WrongType, "something else").expected(schema.describe());
                self.report.error(node.start(), key, fault);
                return None;
            }
            let mut fault = Fault::new(Kind::WrongType, show(node)).expected(schema.describe());
            if let Some(hint) = repair(schema, node) {
                fault = fault.hint(hint);
            }
            self.report.error(node.start(), key, fault);
            return None;
        };
        match node {
            Node::NullKeyword(_) => Some(Value::Null),
            Node::BooleanLit(literal) => Some(Value::Bool(literal.value)),
            Node::NumberLit(literal) => self.check_number(form, literal, key),
            Node::StringLit(literal) => self.check_string(schema, &forms, literal, key),
            Node::Array(array) => Some(self.check_array(form, array, key)),
            Node::Object(object) => Some(self.check_object(form, object, key)),
        }
    }

    fn check_number(&mut self, form: SchemaNode<'_>, literal: &NumberLit<'_>, key: &str) -> Option<Value> {
        let text = literal.value;
        let (minimum, maximum) = form.bounds();
        let fault = |kind| Fault::new(kind, text).expected(form.describe());
        let Some(value) = text.parse::<f64>().ok().filter(|value| value.is_finite()) else {
            let fault = fault(Kind::NotFinite).hint("write a finite number, at most 1.8e308");
            self.report.error(literal.range.start, key, fault);
            return None;
        };
        if form.is_integer() && text.parse::<i128>().is_err() {
            let hint = (value.fract() == 0.0).then(|| format!("write {value:.0}"));
            let fault = hint.into_iter().fold(fault(Kind::WrongType), Fault::hint);
            self.report.error(literal.range.start, key, fault);
            return None;
        }
        if minimum.is_some_and(|minimum| value < minimum) || maximum.is_some_and(|maximum| value > maximum) {
            self.report.error(literal.range.start, key, fault(Kind::OutOfRange));
            return None;
        }
        if form.is_integer() {
            // A zero may have a sign.
            let exact = text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from));
            let Ok(exact) = exact else {
                let fault = fault(Kind::OutOfRange).hint(format!("the largest integer is {}", u64::MAX));
                self.report.error(literal.range.start, key, fault);
                return None;
            };
            return Some(exact);
        }
        Number::from_f64(value).map(Value::Number)
    }

    fn check_string(
        &mut self,
        schema: SchemaNode<'_>,
        forms: &[SchemaNode<'_>],
        literal: &StringLit<'_>,
        key: &str,
    ) -> Option<Value> {
        let text = literal.value.as_ref();
        let at = literal.range.start;
        let plain = forms.iter().find(|form| form.words().is_empty());
        if let Some(form) = plain {
            let is_refused = text.chars().count() < form.min_length()
                || (form.format() == Some("ip") && text.parse::<std::net::IpAddr>().is_err());
            if is_refused {
                let fault = Fault::new(Kind::OutOfRange, quote(text)).expected(schema.describe());
                self.report.error(at, key, fault);
                return None;
            }
            return Some(Value::from(text));
        }
        match forms.iter().find(|form| form.words().contains(&text)) {
            Some(form) if form.is_not_implemented() => {
                self.report.lacks(at, key, text, form.hint().unwrap_or("remove it"));
                None
            }
            Some(_) => Some(Value::from(text)),
            None => {
                let meant = did_you_mean(text, forms.iter().flat_map(|form| form.words()));
                let fault = Fault::new(Kind::UnknownValue, quote(text)).expected(schema.describe()).suggestion(meant);
                self.report.error(at, key, fault);
                None
            }
        }
    }

    fn check_array(&mut self, form: SchemaNode<'_>, array: &Array<'_>, key: &str) -> Value {
        let elements = array.elements.iter().enumerate().filter_map(|(index, element)| {
            let element_key = format!("{key}[{index}]");
            match form.items() {
                Some(items) => self.check(items, element, &element_key),
                None => Some(to_json(element)),
            }
        });
        Value::Array(elements.collect())
    }

    fn check_object(&mut self, form: SchemaNode<'_>, object: &Object<'_>, key: &str) -> Value {
        let mut kept = Map::new();
        for property in &object.properties {
            let name = property.name.as_str();
            let child = join(key, name);
            let at = property.start();
            if self.report.has(&child) {
                let (line, column) = self.report.line_and_column(self.report.place(&child));
                let found = format!("duplicate key, first given at {line}:{column}");
                self.report.error(at, &child, Fault::new(Kind::DuplicateKey, found).hint("keep one of them"));
                continue;
            }
            self.report.remember(&child, at);
            if let Some(schema) = form.property(name) {
                if let Some(value) = self.check_property(schema, property, &child) {
                    kept.insert(name.to_owned(), value);
                }
            } else if let Some(schema) = form.other_properties() {
                if let Some(value) = self.check(schema, &property.value, &child) {
                    kept.insert(name.to_owned(), value);
                }
            } else {
                self.unknown_key(form, name, &child, at, key.is_empty());
            }
        }
        for name in form.required() {
            let child = join(key, name);
            if !self.report.has(&child) {
                let fault = Fault::new(Kind::MissingKey, "missing");
                self.report.error(object.range.start, &child, fault);
            }
        }
        self.warn_of_what_is_off(form, &kept, key);
        Value::Object(kept)
    }

    /// Warns of keys that configure a measurement which is not switched on.
    fn warn_of_what_is_off(&mut self, form: SchemaNode<'_>, kept: &Map<String, Value>, key: &str) {
        for (name, value) in kept {
            let Some(schema) = form.property(name) else { continue };
            let Some(needed) = schema.mark("x-needs").and_then(Value::as_str) else { continue };
            let is_off = !kept.get(needed).and_then(Value::as_bool).unwrap_or(false);
            let asks_for_nothing =
                schema.mark("default") == Some(value) || value.as_object().is_some_and(Map::is_empty);
            if is_off && !asks_for_nothing {
                let child = join(key, name);
                let fault = Fault::new(Kind::NoEffect, format!("has no effect without `{needed}`"));
                let fault = fault.hint(format!("add \"{needed}\": true, or remove the key"));
                self.report.warn(self.report.place(&child), &child, fault);
            }
        }
    }

    fn check_property(&mut self, schema: SchemaNode<'_>, property: &ObjectProp<'_>, key: &str) -> Option<Value> {
        let at = property.start();
        let mut value = self.check(schema, &property.value, key);
        if let Some(hint) = schema.hint() {
            self.report.add_hint(key, hint);
        }
        if value.is_some() && is_switched_on(&property.value) {
            if schema.is_not_implemented() {
                self.report.lacks(at, key, "", "switch it off or remove it");
                value = None;
            }
            if let Some(why) = schema.mark("x-no-effect").and_then(Value::as_str) {
                self.report.warn(at, key, Fault::new(Kind::NoEffect, format!("has no effect: {why}")));
            }
        }
        value
    }

    fn unknown_key(&mut self, form: SchemaNode<'_>, name: &str, key: &str, at: usize, is_outermost: bool) {
        if name.starts_with('_') || name.starts_with("//") {
            let fault = Fault::new(Kind::NoEffect, "has no effect: treated as a comment");
            self.report.warn(at, key, fault.hint("// and /* */ comments are allowed"));
        } else if is_outermost && self.other_dialect_keys.contains(&name) {
            let fault = Fault::new(Kind::UnknownKey, "has no effect: a key of the other dialect");
            let hint =
                "a file with `monitors` or `framework` is a TrainerMonitorV2 config, any other a TrainerMon config";
            self.report.warn(at, key, fault.hint(hint));
        } else if let Some(meant) = did_you_mean(name, form.property_names()) {
            self.report.error(at, key, Fault::new(Kind::UnknownKey, "unknown key").suggestion(Some(meant)));
        } else {
            self.report.warn(at, key, Fault::new(Kind::UnknownKey, "unknown key; it has no effect"));
        }
    }
}

/// Whether a value switches something on: `false`, `0`, `null`, `""`, `[]` and `{"enabled": false}` do not.
fn is_switched_on(node: &Node<'_>) -> bool {
    match node {
        Node::NullKeyword(_) => false,
        Node::BooleanLit(literal) => literal.value,
        Node::NumberLit(literal) => literal.value.parse::<f64>().is_ok_and(|value| value != 0.0),
        Node::StringLit(literal) => !literal.value.is_empty(),
        Node::Array(array) => !array.elements.is_empty(),
        Node::Object(object) => object
            .get("enabled")
            .is_none_or(|enabled| enabled.value.as_boolean_lit().is_none_or(|literal| literal.value)),
    }
}

fn type_of(node: &Node<'_>) -> &'static str {
    match node {
        Node::NullKeyword(_) => "null",
        Node::BooleanLit(_) => "boolean",
        Node::NumberLit(_) => "number",
        Node::StringLit(_) => "string",
        Node::Array(_) => "array",
        Node::Object(_) => "object",
    }
}

fn show(node: &Node<'_>) -> String {
    match node {
        Node::NullKeyword(_) => "null".to_owned(),
        Node::BooleanLit(literal) => literal.value.to_string(),
        Node::NumberLit(literal) => literal.value.to_owned(),
        Node::StringLit(literal) => quote(&literal.value),
        Node::Array(array) if array.elements.is_empty() => "an empty list".to_owned(),
        Node::Array(_) => "a list".to_owned(),
        Node::Object(_) => "an object".to_owned(),
    }
}

fn quote(text: &str) -> String {
    let cut: String = text.chars().take(MAX_QUOTED_CHARS).collect();
    let ellipsis = if cut.len() < text.len() { "…" } else { "" };
    format!("{:?}", cut + ellipsis)
}

/// A hint that says what to write. Every value it names is checked against the schema first.
fn repair(schema: SchemaNode<'_>, node: &Node<'_>) -> Option<String> {
    match node {
        Node::StringLit(literal) => {
            let text = literal.value.trim();
            let bare = text.to_lowercase();
            if (takes(schema, "boolean") || takes(schema, "number")) && is_accepted(schema, &bare) {
                return Some(format!("write {bare} without quotes"));
            }
            let parts: Vec<&str> = text.split([',', ' ']).map(str::trim).filter(|part| !part.is_empty()).collect();
            let quoted: Vec<String> = parts.iter().map(|part| quote(part)).collect();
            first_list(schema, &[quote(text), quoted.join(", "), parts.join(", ")])
        }
        Node::NumberLit(literal) if takes(schema, "boolean") => match literal.value {
            "0" => Some("write false".to_owned()),
            "1" => Some("write true".to_owned()),
            _ => None,
        },
        Node::NumberLit(literal) => {
            let quoted = Some(quote(literal.value)).filter(|quoted| is_accepted(schema, quoted));
            let quoted = quoted.map(|quoted| format!("write {quoted}"));
            quoted.or_else(|| first_list(schema, &[literal.value.to_owned(), quote(literal.value)]))
        }
        Node::NullKeyword(_) => Some("leave the key out for its default".to_owned()),
        Node::Array(_) if takes(schema, "object") => {
            Some("write {\"name\": {}}".to_owned()).filter(|_| takes_any_key(schema))
        }
        _ => None,
    }
}

/// The first of these lists' contents that the schema takes.
fn first_list(schema: SchemaNode<'_>, contents: &[String]) -> Option<String> {
    if !takes(schema, "array") {
        return None;
    }
    let mut lists = contents.iter().filter(|content| !content.is_empty()).map(|content| format!("[{content}]"));
    lists.find(|list| is_accepted(schema, list)).map(|list| format!("write {list}"))
}

fn takes(schema: SchemaNode<'_>, json_type: &str) -> bool {
    schema.forms().iter().any(|form| form.takes(json_type))
}

fn takes_any_key(schema: SchemaNode<'_>) -> bool {
    schema.forms().iter().any(|form| form.takes("object") && form.property_names().is_empty())
}

/// Whether a text is JSON that the schema takes.
fn is_accepted(schema: SchemaNode<'_>, text: &str) -> bool {
    let Ok(node) = source::parse(text) else { return false };
    let mut report = Report::new("", text, Reader::Check);
    let value = Checker { report: &mut report, other_dialect_keys: Vec::new() }.check(schema, &node, "");
    value.is_some() && !report.has_errors()
}

/// Converts an unchecked value to plain JSON. Numbers beyond float64 and duplicate keys become the nearest valid value.
pub(super) fn to_json(node: &Node<'_>) -> Value {
    match node {
        Node::NullKeyword(_) => Value::Null,
        Node::BooleanLit(literal) => Value::Bool(literal.value),
        Node::NumberLit(literal) => serde_json::from_str(literal.value)
            .unwrap_or_else(|_| literal.value.parse::<f64>().map_or(Value::Null, Value::from)),
        Node::StringLit(literal) => Value::from(literal.value.as_ref()),
        Node::Array(array) => Value::Array(array.elements.iter().map(to_json).collect()),
        Node::Object(object) => {
            Value::Object(object.properties.iter().map(|p| (p.name.as_str().to_owned(), to_json(&p.value))).collect())
        }
    }
}
