//! Parsing of text into [`Config`].

use jsonc_parser::ast::Value as Node;
use jsonc_parser::common::Ranged;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::check::{self, Checker};
use super::diagnostic::{ConfigErrors, Diagnostic, DiagnosticKind as Kind};
use super::effective::{Config, Dialect};
use super::file::{V1File, V2File};
use super::idle;
use super::normalise::{self, Environment};
use super::on_demand::CaptureRequest;
use super::places::{take_places, without_places};
use super::plan::PlanChange;
use super::report::{Fault, Reader, Report};
use super::schema::{SchemaNode, capture_request_schema, change_schema, json_schema};
use super::source;

/// The config of a front without a config file: [`Config::default`] without the scrape page, because several watches of a process
/// would conflict over its port.
pub const USUAL_CONFIG: &str = r#"{
  "wg_distribution": true,
  "mv_distribution": true,
  "param_distribution": true,
  "ops": ["min", "max", "mean", "norm", "nans"],
  "repeat_rows": false
}"#;

/// The name of extra keys in messages.
const KEYS_GIVEN: &str = "keyword arguments";

/// A parsed config and its warnings.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The effective config.
    pub config: Config,
    /// The warnings, in the order of the file.
    pub warnings: Vec<Diagnostic>,
}

impl Config {
    /// Reads a config file's text: JSON with comments and trailing commas, in either dialect.
    ///
    /// `file` is the name used in messages. `env` reads an environment variable: V1's dynamic mode needs
    /// [`DYNAMIC_VARIABLE`](super::DYNAMIC_VARIABLE). A missing output directory stays missing, for the caller to choose.
    /// [`Config::default`] is the config of a run without a file.
    ///
    /// # Errors
    ///
    /// Every fault of the text at once, in the order of the file, each with its line and column; of faults in the
    /// syntax only the first.
    ///
    /// # Cost
    ///
    /// A tenth of a millisecond for a file with every key; the first call also builds the schema, below a millisecond.
    pub fn parse(text: &str, file: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Parsed, ConfigErrors> {
        Self::parse_as(text, file, env, Reader::Check)
    }

    /// Reads the config that a training starts with: as [`parse`](Self::parse), but what this version does not have
    /// ([`DiagnosticKind::NotImplemented`](super::DiagnosticKind::NotImplemented)) is a warning and has no effect. A
    /// file that another monitor takes does not end a training.
    ///
    /// # Errors
    ///
    /// Every other fault, as in [`parse`](Self::parse).
    pub fn parse_for_training(
        text: &str,
        file: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Parsed, ConfigErrors> {
        Self::parse_as(text, file, env, Reader::Training)
    }

    /// The config of a file in this dialect without keys, which measures nothing. Comparing with it shows the changes of a file.
    pub fn of_empty_file(dialect: Dialect) -> Self {
        // A file without keys has no faults.
        let mut report = Report::new("", "", Reader::Check);
        match dialect {
            Dialect::V1 => normalise::from_v1(&V1File::default(), &|_| None, &mut report),
            Dialect::V2 => normalise::from_v2(V2File::default(), &mut report),
        }
    }

    /// Reads the config that a training written for msprobe starts with: as
    /// [`parse_for_training`](Self::parse_for_training), but steps among which none is measured are a warning. msprobe
    /// measures none then, and says nothing.
    ///
    /// # Errors
    ///
    /// Every other fault, as in [`parse_for_training`](Self::parse_for_training).
    pub fn parse_for_msprobe(
        text: &str,
        file: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Parsed, ConfigErrors> {
        Self::parse_as(text, file, env, Reader::MsprobeTraining)
    }

    /// Reads the config that a training starts with, with keys of `over` in the place of the text's outermost ones.
    ///
    /// # Errors
    ///
    /// Every fault of the text, each with its place; if it has none, every fault that comes with the keys given. Those
    /// have line and column 0.
    pub fn parse_over(
        text: &str,
        over: &Map<String, Value>,
        file: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Parsed, ConfigErrors> {
        let alone = Self::parse_for_training(text, file, env)?;
        if over.is_empty() {
            return Ok(alone);
        }
        let tree = source::parse(text.strip_prefix('\u{feff}').unwrap_or(text)).ok();
        let Some(Value::Object(mut merged)) = tree.as_ref().map(check::to_json) else { return Ok(alone) };
        merged.extend(over.clone());
        let parsed = Self::parse_for_training(&Value::Object(merged).to_string(), KEYS_GIVEN, env);
        let mut parsed = parsed.map_err(without_places)?;
        take_places(&mut parsed.warnings, &alone.warnings);
        Ok(parsed)
    }

    /// The outermost keys of a config file, of both dialects.
    pub fn keys() -> Vec<&'static str> {
        let schema = json_schema();
        let files = [Dialect::V1, Dialect::V2].map(|dialect| SchemaNode::of_file(schema, dialect));
        let mut keys: Vec<&str> =
            files.into_iter().flat_map(SchemaNode::forms).flat_map(SchemaNode::property_names).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn parse_as(text: &str, file: &str, env: Environment<'_>, reader: Reader) -> Result<Parsed, ConfigErrors> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut report = Report::new(file, text, reader);
        let config = read(text, env, &mut report);
        match config {
            Some(config) if !report.has_errors() => {
                idle::warn_if_idle(&config, &mut report);
                Ok(Parsed { config, warnings: report.finish().1 })
            }
            _ => {
                let (errors, warnings) = report.finish();
                Err(ConfigErrors { errors, warnings })
            }
        }
    }
}

fn read(text: &str, env: Environment<'_>, report: &mut Report<'_>) -> Option<Config> {
    let tree = match source::parse(text) {
        Ok(tree) => tree,
        Err(syntax) => {
            let fault = Fault::new(Kind::Syntax, syntax.found);
            report.error(syntax.offset, "", syntax.hint.into_iter().fold(fault, Fault::hint));
            return None;
        }
    };
    if let Some(task) = tree.as_object().and_then(|object| object.get("task")) {
        let task = Task { name: task.value.as_string_lit().map(|name| &*name.value), offset: task.start() };
        return Some(of_capture(&task, report));
    }
    let dialect = dialect_of(&tree);
    let schema = json_schema();
    let other = match dialect {
        Dialect::V1 => Dialect::V2,
        Dialect::V2 => Dialect::V1,
    };
    let other_forms = SchemaNode::of_file(schema, other).forms();
    let other_dialect_keys = other_forms.into_iter().flat_map(SchemaNode::property_names).collect();
    let mut checker = Checker { report, other_dialect_keys };
    let value = checker.check(SchemaNode::of_file(schema, dialect), &tree, "")?;
    let start = tree.start();
    match dialect {
        Dialect::V1 => Some(normalise::from_v1(&typed::<V1File>(value, start, report)?, env, report)),
        Dialect::V2 => Some(normalise::from_v2(typed::<V2File>(value, start, report)?, report)),
    }
}

/// The `task` key, which distinguishes msprobe's config of a capture from that of a monitor.
struct Task<'a> {
    /// `None` if the key's value is not text.
    name: Option<&'a str>,
    offset: usize,
}

/// Reports a capture's config as one fault instead of one unknown key after another. A training that is given one measures
/// nothing.
fn of_capture(task: &Task<'_>, report: &mut Report<'_>) -> Config {
    let found = task.name.unwrap_or("a value that is not text");
    let found = format!("task: {found}` belongs to the config of a capture, but this is a monitor");
    let hint = "pass the file to `PrecisionDebugger` or `trainmon.capture`; a monitor's config has keys like `wg_distribution` and no `task`";
    report.misplaced(task.offset, "task", &format!("`{found}"), hint);
    Config::of_empty_file(Dialect::V1)
}

/// Deserializes the checked value. The checks should leave no errors; one that remains is reported like any other.
fn typed<T: DeserializeOwned>(value: Value, start: usize, report: &mut Report<'_>) -> Option<T> {
    match serde_json::from_value(value) {
        Ok(file) => Some(file),
        // A wrong value was removed from the checked one, so a required key may be missing; it was already reported.
        Err(_) if report.has_errors() => None,
        Err(error) => {
            report.error(start, "", Fault::new(Kind::WrongType, error.to_string()));
            None
        }
    }
}

impl PlanChange {
    /// Reads a change of measurements: JSON, checked like a config file, except that an unknown key is an error.
    ///
    /// `name` identifies the text in messages.
    ///
    /// # Errors
    ///
    /// Every fault of the text at once.
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigErrors> {
        parse_request(text, name, change_schema())
    }
}

impl CaptureRequest {
    /// Reads a request for a capture, as [`PlanChange::parse`] reads a change.
    ///
    /// # Errors
    ///
    /// Every fault of the text at once.
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigErrors> {
        parse_request(text, name, capture_request_schema())
    }
}

fn parse_request<T: DeserializeOwned>(text: &str, name: &str, schema: &Value) -> Result<T, ConfigErrors> {
    let mut report = Report::new(name, text, Reader::Check);
    let request = read_request(text, schema, &mut report);
    let has_errors = report.has_errors();
    let (mut errors, warnings) = report.finish();
    // A partially executed request would mislead the sender.
    errors.extend(warnings);
    match request {
        Some(request) if !has_errors && errors.is_empty() => Ok(request),
        _ => Err(ConfigErrors { errors, warnings: Vec::new() }),
    }
}

fn read_request<T: DeserializeOwned>(text: &str, schema: &Value, report: &mut Report<'_>) -> Option<T> {
    let tree = match source::parse(text) {
        Ok(tree) => tree,
        Err(syntax) => {
            let fault = Fault::new(Kind::Syntax, syntax.found);
            report.error(syntax.offset, "", syntax.hint.into_iter().fold(fault, Fault::hint));
            return None;
        }
    };
    let mut checker = Checker { report, other_dialect_keys: Vec::new() };
    let value = checker.check(SchemaNode::whole(schema), &tree, "")?;
    typed(value, tree.start(), report)
}

fn dialect_of(tree: &Node<'_>) -> Dialect {
    let is_v2 = tree.as_object().is_some_and(|object| object.get("monitors").or(object.get("framework")).is_some());
    if is_v2 { Dialect::V2 } else { Dialect::V1 }
}
