//! Findings of rules that run on their own threads.

use std::time::SystemTime;

use trainmon_core::{AlertPhase, AlertRule, AlertSeries, Expectation, Step};

/// A finding to act on like those of the worker thread.
#[derive(Clone, Debug)]
pub struct Raised {
    /// The rule. The first rule of that name in the config sets severity and actions.
    pub rule: AlertRule,
    /// Whether the alert begins or ends.
    pub phase: AlertPhase,
    /// The number of findings since it began.
    pub findings: u64,
    /// The step of the finding.
    pub step: Step,
    /// The wall-clock time at the end of that step.
    pub time: SystemTime,
    /// The series.
    pub series: AlertSeries,
    /// The value found.
    pub value: f64,
    /// The value expected.
    pub expected: Expectation,
    /// The message, one sentence.
    pub message: String,
}
