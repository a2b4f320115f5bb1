//! The answer and its level.

use serde::Serialize;

/// The answer of a comparison of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// No difference beyond noise.
    NoDivergence,
    /// The runs differ from the first common step on.
    DifferentStart,
    /// The runs diverge at a later step.
    Diverges,
    /// The runs have too little in common.
    CannotTell,
}

/// The severity, for exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// No difference.
    Fine,
    /// A limitation of the comparison.
    Warning,
    /// The runs differ or are not comparable.
    Error,
}

/// The answer and its reasons.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The answer.
    pub answer: Answer,
    /// The severity.
    pub level: Level,
    /// The headline.
    pub sentence: String,
    /// The reasons, one sentence each.
    pub reasons: Vec<String>,
    /// What to do next.
    pub next: Option<String>,
}
