//! `trainmon check-config`: validates a config file and prints its meaning.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_core::config::{
    CaptureConfig, CaptureDialect, Config, ConfigErrors, Diagnostic, DiagnosticKind, Parsed, ParsedCapture, Rule,
};
use trainmon_report::Advise;
use trainmon_runs::compare::why_no_run;

/// The result of validating one config file. Its JSON form is the output of `trainmon check-config --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The file, as the user passed it.
    pub(crate) file: String,
    /// Whether a training would accept it.
    pub(crate) ok: bool,
    /// The errors, in file order.
    pub(crate) errors: Vec<Finding>,
    /// The keys without effect, in file order.
    pub(crate) warnings: Vec<Finding>,
    /// The effective config with defaults filled in; absent if there are errors.
    pub(crate) config: Option<Meant>,
    /// The file's text, for excerpts.
    #[serde(skip)]
    pub(crate) text: String,
}

/// The kind of config in a file.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Meant {
    /// A monitor.
    Monitor(Box<Config>),
    /// A capture.
    Capture(Box<CaptureConfig>),
}

/// An error or a warning.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    /// The whole message in one line.
    pub(crate) message: String,
    /// Its parts.
    #[serde(flatten)]
    pub(crate) diagnostic: Diagnostic,
}

impl Report {
    /// The differences between the config and that of an empty file; `None` if there are errors.
    pub(crate) fn differences(&self) -> Option<Value> {
        let config = self.config.as_ref()?;
        let (mut config, default) = match config {
            Meant::Monitor(config) => (json!(config), json!(Config::of_empty_file(config.dialect))),
            Meant::Capture(config) => (json!(config), json!(CaptureConfig::default())),
        };
        // If CSV files are written, their layout is that of the files.
        if let Some(object) = config.as_object_mut().filter(|object| object.get("csv") == object.get("csv_layout")) {
            object.remove("csv_layout");
        }
        Some(differing(&config, &default))
    }
}

/// The members of `value` that differ from `default`; a value that is not an object is returned whole.
fn differing(value: &Value, default: &Value) -> Value {
    let (Value::Object(members), Value::Object(defaults)) = (value, default) else { return value.clone() };
    let differs = |(name, member): (&String, &Value)| {
        let default = defaults.get(name).unwrap_or(&Value::Null);
        (member != default).then(|| (name.clone(), differing(member, default)))
    };
    Value::Object(members.iter().filter_map(differs).collect())
}

impl From<Diagnostic> for Finding {
    fn from(diagnostic: Diagnostic) -> Self {
        Self { message: diagnostic.to_string(), diagnostic }
    }
}

/// A config file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read `{file}`")]
pub(crate) struct Unreadable {
    /// The file, as the user passed it.
    pub(crate) file: String,
    /// The cause.
    #[source]
    pub(crate) source: std::io::Error,
}

impl Advise for Unreadable {
    fn hint(&self) -> &str {
        match self.source.kind() {
            std::io::ErrorKind::NotFound => "check the path; it is relative to the current directory",
            std::io::ErrorKind::PermissionDenied => "check the permissions of the file",
            std::io::ErrorKind::InvalidData => "save the config file as UTF-8 text",
            _ => "pass the path of a config file",
        }
    }
}

/// Warnings about baseline runs that do not exist or are not runs: a training logs this and continues without the rule.
/// The runs may be on another machine.
fn golden_runs_missing(file: &str, config: &Config) -> Vec<Diagnostic> {
    let of_rule = |(index, rule): (usize, &Rule)| {
        let key = format!("alert.rules[{index}].golden");
        let missing = rule.golden.iter().filter_map(|path| why_no_run(path));
        let diagnostic = |(why, hint): (String, String)| Diagnostic {
            file: file.to_owned(),
            line: 0,
            column: 0,
            key: key.clone(),
            kind: DiagnosticKind::NoEffect,
            expected: None,
            found: Some(format!("{why}: `{}` would have no baseline", rule.rule)),
            suggestion: None,
            hint: Some(hint),
        };
        missing.map(diagnostic).collect::<Vec<_>>()
    };
    config.alert.rules.iter().enumerate().flat_map(of_rule).collect()
}

/// Reads and validates one file, with the environment variables of this process.
///
/// # Errors
///
/// Only if the file cannot be read; errors inside it are part of the report.
pub(crate) fn validate(path: &Path) -> Result<Report, Unreadable> {
    let file = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(source) => return Err(Unreadable { file, source }),
    };
    let parsed = if CaptureConfig::is_meant_by(&text) {
        let parsed = CaptureConfig::parse(&text, &file, CaptureDialect::Trainmon);
        parsed.map(|ParsedCapture { config, warnings }| (Meant::Capture(Box::new(config)), warnings))
    } else {
        let parsed = Config::parse(&text, &file, &|name| std::env::var(name).ok());
        parsed.map(|Parsed { config, mut warnings }| {
            warnings.extend(golden_runs_missing(&file, &config));
            (Meant::Monitor(Box::new(config)), warnings)
        })
    };
    let findings = |diagnostics: Vec<Diagnostic>| diagnostics.into_iter().map(Finding::from).collect();
    Ok(match parsed {
        Ok((config, warnings)) => {
            Report { file, ok: true, errors: Vec::new(), warnings: findings(warnings), config: Some(config), text }
        }
        Err(ConfigErrors { errors, warnings }) => {
            Report { file, ok: false, errors: findings(errors), warnings: findings(warnings), config: None, text }
        }
    })
}
