//! The findings of the rules, as text and as JSON.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use trainmon_core::{Alert, AlertPhase};
use trainmon_report::{counted, result_as_json};

use super::error::JudgeError;
use crate::steps::{Log, log_in_json};
use trainmon_baseline::NewestRun;

/// The number of ranks that are listed.
const RANKS_SHOWN: usize = 8;

/// The findings of the rules in a recorded run.
#[derive(Debug, Serialize)]
pub struct Judged {
    /// The run's name.
    pub run: String,
    /// The selected run, if the directory contains several.
    pub newest: Option<NewestRun>,
    /// Another tool's log, if one was read.
    #[serde(serialize_with = "log_in_json")]
    pub log: Option<Arc<Log>>,
    /// The ranks.
    pub ranks: Vec<JudgedRank>,
    /// The alerts of all ranks that began or ended, by step.
    pub alerts: Vec<Alert>,
    /// The number of alerts that were still active at the last step.
    pub going_on: usize,
    /// The number of findings by rule, including unreported ones.
    #[serde(serialize_with = "by_rule")]
    pub findings: Vec<(&'static str, u64)>,
    /// The number of alerts beyond the limit per step.
    pub unsaid: u64,
    /// The signals that were not judged, a sentence each.
    pub not_judged: Vec<String>,
    /// Warnings about the files, a sentence each.
    pub warnings: Vec<String>,
}

/// The judged steps of a rank.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JudgedRank {
    /// The rank.
    pub rank: u32,
    /// The number of steps.
    pub steps: u64,
    /// The first and the last step.
    pub range: Option<(u64, u64)>,
}

impl Judged {
    /// The number of alerts that began.
    pub fn begun(&self) -> usize {
        self.alerts.iter().filter(|alert| alert.phase == AlertPhase::Begins).count()
    }

    /// A line for each alert that began or ended.
    pub fn in_words(&self) -> String {
        self.alerts.iter().fold(String::new(), |text, alert| text + &alert.message + "\n")
    }

    /// The runs and ranks that were read, if they are not obvious.
    pub fn read_in_words(&self) -> String {
        if let Some(log) = &self.log {
            return log.in_words();
        }
        let of_rank = |JudgedRank { rank, steps, range }: &JudgedRank| {
            let range = range.map_or_else(String::new, |(first, last)| format!(", {first} to {last}"));
            format!("read {steps} steps of {} rank {rank}{range}\n", self.run)
        };
        let more = self.ranks.len().saturating_sub(RANKS_SHOWN);
        let more = if more > 0 { format!("read {more} more ranks\n") } else { String::new() };
        self.ranks.iter().take(RANKS_SHOWN).map(of_rank).collect::<String>() + &more
    }

    /// The signals that were not judged, and the totals.
    pub fn sum_in_words(&self) -> String {
        let Self { going_on, findings, unsaid, not_judged, .. } = self;
        let steps = counted(self.ranks.iter().map(|rank| rank.steps).max().unwrap_or(0), "step", "steps");
        let on = if self.ranks.len() > 1 { format!(" on {} ranks", self.ranks.len()) } else { String::new() };
        let sum = match self.begun() {
            0 => format!("no alert in {steps}{on}"),
            begun => format!("{} in {steps}{on}", counted(begun as u64, "alert", "alerts")),
        };
        let mut parts = vec![sum];
        if !findings.is_empty() {
            let listed: Vec<String> = findings.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
            parts.push(format!("findings: {}", listed.join(", ")));
        }
        if *unsaid > 0 {
            parts.push(format!("{unsaid} more alerts not listed"));
        }
        if *going_on > 0 {
            parts.push(format!("{going_on} still active at the last step"));
        }
        let lines: Vec<String> = not_judged.iter().cloned().chain([parts.join("; ")]).collect();
        lines.join("\n") + "\n"
    }
}

/// The findings, or the error, as JSON.
pub fn as_json(judged: &Result<Judged, JudgeError>) -> Value {
    let failed = json!({
        "run": null, "newest": null, "log": null, "ranks": [], "alerts": [], "going_on": 0, "findings": {}, "unsaid": 0,
        "not_judged": [], "warnings": [],
    });
    result_as_json(judged, failed)
}

fn by_rule<S: Serializer>(findings: &[(&'static str, u64)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(findings.iter().copied())
}
