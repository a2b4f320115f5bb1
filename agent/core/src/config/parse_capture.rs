//! Parsing of text into [`CaptureConfig`].

use jsonc_parser::common::Ranged;
use serde_json::{Map, Value};

use super::capture::{CaptureConfig, CaptureFile, Precision, normalise};
use super::check::{self, Checker};
use super::diagnostic::{ConfigErrors, Diagnostic, DiagnosticKind as Kind};
use super::places::{take_places, without_places};
use super::report::{Fault, Reader, Report};
use super::schema::{SchemaNode, json_schema};
use super::source;

/// The API that a training uses, which determines the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureDialect {
    /// `trainmon.capture`: correct mean and norm (`precision: "high"`).
    #[default]
    Trainmon,
    /// `PrecisionDebugger`: as msprobe computes them.
    Msprobe,
}

/// A parsed capture config and its warnings.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedCapture {
    /// The effective config.
    pub config: CaptureConfig,
    /// The warnings, in the order of the file.
    pub warnings: Vec<Diagnostic>,
}

impl CaptureConfig {
    /// Reads a capture's config: JSON with comments and trailing commas. A feature that this version lacks is an error; in
    /// [`parse_over`](Self::parse_over), which a training starts with, a warning.
    ///
    /// # Errors
    /// Every fault of the text at once, in the order of the file, each with its line and column.
    pub fn parse(text: &str, file: &str, dialect: CaptureDialect) -> Result<ParsedCapture, ConfigErrors> {
        parse_as(text, file, dialect, Reader::Check)
    }

    /// Reads the config that a training starts with; keys of `over` (a constructor's arguments) replace the text's outermost
    /// keys.
    ///
    /// # Errors
    /// Every fault of the text, each with its place. If there is none, every fault that the given keys cause, with line and
    /// column 0.
    pub fn parse_over(
        text: &str,
        over: &Map<String, Value>,
        file: &str,
        dialect: CaptureDialect,
    ) -> Result<ParsedCapture, ConfigErrors> {
        let alone = parse_as(text, file, dialect, Reader::Training)?;
        let tree = source::parse(without_mark(text)).ok();
        let Some(Value::Object(mut merged)) = tree.as_ref().map(check::to_json) else { return Ok(alone) };
        merged.extend(over.clone());
        let parsed = parse_as(&Value::Object(merged).to_string(), "arguments", dialect, Reader::Training);
        let mut parsed = parsed.map_err(without_places)?;
        take_places(&mut parsed.warnings, &alone.warnings);
        Ok(parsed)
    }

    /// Whether a config file's text is that of a capture: it has the key `task`. `false` for text that is not JSON.
    pub fn is_meant_by(text: &str) -> bool {
        let tree = source::parse(without_mark(text));
        tree.is_ok_and(|tree| tree.as_object().is_some_and(|object| object.get("task").is_some()))
    }
}

fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn parse_as(text: &str, file: &str, dialect: CaptureDialect, reader: Reader) -> Result<ParsedCapture, ConfigErrors> {
    let text = without_mark(text);
    let mut report = Report::new(file, text, reader);
    let config = read(text, dialect, &mut report);
    let has_errors = report.has_errors();
    let (errors, warnings) = report.finish();
    match config {
        Some(config) if !has_errors => Ok(ParsedCapture { config, warnings }),
        _ => Err(ConfigErrors { errors, warnings }),
    }
}

fn read(text: &str, dialect: CaptureDialect, report: &mut Report<'_>) -> Option<CaptureConfig> {
    let tree = match source::parse(text) {
        Ok(tree) => tree,
        Err(syntax) => {
            let fault = Fault::new(Kind::Syntax, syntax.found);
            report.error(syntax.offset, "", syntax.hint.into_iter().fold(fault, Fault::hint));
            return None;
        }
    };
    let mut checker = Checker { report, other_dialect_keys: Vec::new() };
    let value = checker.check(SchemaNode::of_capture(json_schema()), &tree, "")?;
    let file: CaptureFile = match serde_json::from_value(value) {
        Ok(file) => file,
        // The checks should leave no errors; one that remains is reported like any other.
        Err(_) if report.has_errors() => return None,
        Err(error) => {
            report.error(tree.start(), "", Fault::new(Kind::WrongType, error.to_string()));
            return None;
        }
    };
    let usual = match dialect {
        CaptureDialect::Trainmon => normalise::Usual { precision: Precision::High, neutral: true },
        CaptureDialect::Msprobe => normalise::Usual { precision: Precision::Low, neutral: false },
    };
    Some(normalise::from_file(file, usual, report))
}
