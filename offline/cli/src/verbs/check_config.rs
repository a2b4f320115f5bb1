//! `trainmon check-config`: its arguments and what it says.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use trainmon_report::{Advise as _, Outcome, Printer};

use crate::excerpt::excerpt;
use crate::validate_config::{Finding, Report, Unreadable, validate};

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon check-config train.json\n",
    "  trainmon check-config train.json --full | jq .window\n",
    "  trainmon check-config train.json --json | jq '.errors[].message'"
);

/// So many errors and so many warnings are printed.
const MOST_SHOWN: usize = 100;

/// What to check.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The config file: JSON, comments and trailing commas allowed
    file: PathBuf,
    /// Print the whole config, not only what differs from the defaults
    #[arg(long)]
    full: bool,
    /// Print one JSON object with the errors, the warnings and the whole config, also on failure
    #[arg(long)]
    json: bool,
}

/// Validates, and says what is wrong.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let Arguments { file, full, json } = arguments;
    let validated = validate(file);
    if *json { print_as_json(file, &validated, printer) } else { print(&validated, *full, printer) }
}

fn print(validated: &Result<Report, Unreadable>, full: bool, printer: &mut Printer) -> io::Result<Outcome> {
    let report = match validated {
        Ok(report) => report,
        Err(unreadable) => {
            printer.failure(unreadable, Some(unreadable.hint()));
            return Ok(Outcome::Failed);
        }
    };
    let below = |finding: &Finding| {
        let diagnostic = &finding.diagnostic;
        // A line of this object may hold a key to a receiver: it is not shown.
        let is_secret = diagnostic.key.starts_with("otlp");
        // What no line is to be blamed for has none.
        if is_secret || diagnostic.line == 0 {
            String::new()
        } else {
            excerpt(&report.text, diagnostic.line, diagnostic.column)
        }
    };
    for warning in report.warnings.iter().take(MOST_SHOWN) {
        printer.warning(&warning.message, &below(warning), warning.diagnostic.hint.as_deref());
    }
    for error in report.errors.iter().take(MOST_SHOWN) {
        printer.error(&error.message, &below(error), error.diagnostic.hint.as_deref());
    }
    for (what, all) in [("warnings", &report.warnings), ("errors", &report.errors)] {
        if let Some(more) = all.len().checked_sub(MOST_SHOWN).filter(|more| *more > 0) {
            printer.note(&format!("{more} more {what} are not shown; --json prints all\n"));
        }
    }
    if let Some(config) = report.config.as_ref().filter(|_| full) {
        printer.json(config)?;
        return Ok(Outcome::Fine);
    }
    if let Some(differences) = report.differences() {
        printer.json(&differences)?;
        return Ok(Outcome::Fine);
    }
    let count = report.errors.len();
    printer.note(&format!("{}: {count} error{}\n", report.file, if count == 1 { "" } else { "s" }));
    Ok(Outcome::Failed)
}

fn print_as_json(file: &Path, validated: &Result<Report, Unreadable>, printer: &mut Printer) -> io::Result<Outcome> {
    let is_ok = match validated {
        Ok(report) => {
            printer.json(report)?;
            report.ok
        }
        Err(unreadable) => {
            let (message, cause) = (unreadable.to_string(), unreadable.source.to_string());
            let error = json!({
                "message": format!("{message}: {cause}"), "file": file.display().to_string(), "line": null,
                "column": null, "key": "", "kind": "unreadable", "expected": null, "found": cause,
                "suggestion": null, "hint": unreadable.hint(),
            });
            let file = file.display().to_string();
            let report = json!({"file": file, "ok": false, "errors": [error], "warnings": [], "config": null});
            printer.json(&report)?;
            false
        }
    };
    Ok(if is_ok { Outcome::Fine } else { Outcome::Failed })
}
