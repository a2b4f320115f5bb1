//! A complete capture order, derived from a request and the config, and the config of that capture.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::capture::{CaptureConfig, Summary};
use super::diagnostic::{ConfigErrors, DiagnosticKind as Kind};
use super::on_demand::{CaptureOnDemand, CaptureRequest, DemandLevel, DemandTask};
use super::parse_capture::CaptureDialect;
use super::places::without_places;
use super::report::{Fault, Report};

/// A complete order for a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureOrder {
    /// The first step captured, if the request specifies it.
    pub at: Option<u64>,
    /// The number of consecutive steps, at least 1.
    pub steps: u32,
    /// The level of detail.
    pub level: DemandLevel,
    /// The data kept of each value.
    pub task: DemandTask,
    /// The first and the last entry; empty: all.
    pub scope: Vec<String>,
    /// Substrings, one of which an entry's name must contain; empty: all names.
    pub list: Vec<String>,
    /// The summary of a tensor.
    pub summary_mode: Summary,
}

impl CaptureOnDemand {
    /// The complete order of a request, checked as the config of a capture.
    ///
    /// # Errors
    /// Every fault at once, for example a scope with names that the level does not have.
    pub fn order(&self, request: &CaptureRequest, name: &str) -> Result<CaptureOrder, ConfigErrors> {
        let CaptureRequest { at, steps, level, task, scope, list, summary_mode, number: _ } = request.clone();
        let order = CaptureOrder {
            at,
            steps: steps.unwrap_or(self.steps),
            level: level.unwrap_or(self.level),
            task: task.unwrap_or(self.task),
            scope: scope.unwrap_or_else(|| self.scope.clone()),
            list: list.unwrap_or_else(|| self.list.clone()),
            summary_mode: summary_mode.unwrap_or(self.summary_mode),
        };
        let parsed = CaptureConfig::parse(&order.text("captures", None), name, CaptureDialect::Trainmon);
        parsed.map_err(|errors| named_as_in_request(errors, order.task))?;
        Ok(order)
    }

    pub(super) fn check(&self, report: &mut Report<'_>) {
        let requests = [("capture", Some(CaptureRequest::default())), ("capture.request", self.request.clone())];
        for (place, request) in requests.into_iter().filter_map(|(place, request)| Some((place, request?))) {
            let Err(errors) = self.order(&request, place) else { continue };
            for error in errors.errors {
                let key = format!("{place}.{}", error.key);
                let known = key.split('[').next().unwrap_or(&key);
                let mut fault = Fault::new(Kind::OutOfRange, error.found.unwrap_or_default());
                fault = error.expected.into_iter().fold(fault, Fault::expected);
                report.error(report.place(known), &key, error.hint.into_iter().fold(fault, Fault::hint));
            }
            // Both would report the same fault.
            return;
        }
    }
}

/// Renames keys: a capture's config has these keys in an object named after the task.
fn named_as_in_request(errors: ConfigErrors, task: DemandTask) -> ConfigErrors {
    let mut errors = without_places(errors);
    let prefix = format!("{}.", task.name());
    for error in &mut errors.errors {
        if let Some(own) = error.key.strip_prefix(&prefix) {
            error.key = own.to_owned();
        }
    }
    errors
}

impl CaptureOrder {
    /// The config of the capture, as text.
    pub fn text(&self, dump_path: &str, disk_budget_mib: Option<u64>) -> String {
        let mut block = Map::new();
        if !self.scope.is_empty() {
            block.insert("scope".to_owned(), json!(self.scope));
        }
        if !self.list.is_empty() {
            block.insert("list".to_owned(), json!(self.list));
        }
        if self.task == DemandTask::Statistics {
            block.insert("summary_mode".to_owned(), json!(self.summary_mode));
        }
        let mut config = Map::new();
        config.insert("task".to_owned(), json!(self.task));
        config.insert("level".to_owned(), json!(self.level));
        config.insert("dump_path".to_owned(), json!(dump_path));
        config.extend(disk_budget_mib.map(|budget| ("disk_budget_mib".to_owned(), json!(budget))));
        config.insert(self.task.name().to_owned(), Value::Object(block));
        Value::Object(config).to_string()
    }

    /// A short description: `2 steps, mix, statistics`.
    pub fn in_words(&self) -> String {
        let steps = if self.steps == 1 { "1 step".to_owned() } else { format!("{} steps", self.steps) };
        let at = self.at.map(|at| format!(" from step {at} on")).unwrap_or_default();
        let part = if self.scope.is_empty() && self.list.is_empty() { "" } else { ", in part" };
        format!("{steps}{at}, {}, {}{part}", self.level.name(), self.task.name())
    }
}
