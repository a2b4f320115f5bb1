//! The answer and its level.

use serde::Serialize;

/// What is said of two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing is beyond noise.
    NoDivergence,
    /// They did not start alike.
    DifferentStart,
    /// They part in the course of a step.
    Diverges,
    /// There is nothing to tell it by.
    CannotTell,
}

/// How bad it is, for exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// All is well.
    Fine,
    /// Something to look at.
    Warning,
    /// The runs differ, or nobody can tell.
    Error,
}

/// The answer with its reasons.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The answer.
    pub answer: Answer,
    /// How bad it is.
    pub level: Level,
    /// In a sentence.
    pub sentence: String,
    /// What it rests on, one sentence each.
    pub reasons: Vec<String>,
    /// What to do next.
    pub next: Option<String>,
}
