//! The answer and its level.

use serde::Serialize;

/// The answer of a comparison of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAnswer {
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
pub struct RunVerdict {
    /// The answer.
    pub answer: RunAnswer,
    /// The severity.
    pub level: Level,
    /// The headline.
    pub sentence: String,
    /// The reasons, one sentence each.
    pub reasons: Vec<String>,
    /// The next step for the user.
    pub next: Option<String>,
}
