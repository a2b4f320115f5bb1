//! What a rule found that looks on a thread of its own.

use std::time::SystemTime;

use trainmon_core::{AlertPhase, AlertRule, AlertSeries, Expectation, Step};

/// A finding to be acted upon as if the rule had looked in the worker thread.
#[derive(Clone, Debug)]
pub struct Raised {
    /// Which rule; the first of that name in the config says how much it matters and what is done.
    pub rule: AlertRule,
    /// Whether it begins or is over.
    pub phase: AlertPhase,
    /// Findings since it began.
    pub findings: u64,
    /// The step it was found in.
    pub step: Step,
    /// Wall clock at that step's end.
    pub time: SystemTime,
    /// Where.
    pub series: AlertSeries,
    /// What was found.
    pub value: f64,
    /// What was expected.
    pub expected: Expectation,
    /// One sentence.
    pub message: String,
}
