//! The report: what JSON and Markdown are made of.

use serde::Serialize;
use trainmon_core::{AlertPhase, AlertRule, AlertSeverity, number};
use trainmon_runs::NewestRun;

pub use super::movement::Direction;

/// Goes up with every change that an older reader would misunderstand.
pub const VERSION: u32 = 1;

/// What a run shows, at most 256 KB as JSON and as Markdown whatever the run's size.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The program's.
    pub trainmon: &'static str,
    /// The run's name.
    pub run: String,
    /// Which run was taken of a directory that holds several.
    pub newest: Option<NewestRun>,
    /// What was read and what was guessed, where it is the log of another tool, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// How many ranks it had.
    pub world_size: u32,
    /// The answer in a sentence.
    pub summary: String,
    /// What to do next, the most telling first.
    pub next: Vec<NextStep>,
    /// Series that left what they were before, the earliest first.
    pub moved: Vec<Moved>,
    /// What stands out besides, the most telling first.
    pub stands_out: Vec<StandsOut>,
    /// Alerts, oldest first.
    pub alerts: Vec<ReportedAlert>,
    /// The run's curves.
    pub curves: Vec<CurveSummary>,
    /// By rank.
    pub ranks: Vec<RankSummary>,
    /// What nobody can tell from this run, a sentence each.
    pub not_measured: Vec<String>,
    /// How the answer was found.
    pub method: Method,
    /// What is not as it should be in the files, a sentence each.
    pub warnings: Vec<String>,
    /// What found no room.
    pub left_out: LeftOut,
}

/// What would settle a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// What is open.
    pub question: String,
    /// What to run or capture.
    pub action: String,
    /// A command, where one does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Something that stands out, though no series need have moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StandsOut {
    /// What it is.
    pub kind: StandsOutKind,
    /// Since when, or in which step; absent for what is true of the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Where; of several ranks the first.
    pub rank: u32,
    /// The layer, the tensor or the curve.
    pub name: String,
    /// A sentence without its full stop.
    pub words: String,
}

/// Kinds of what stands out, the most telling first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StandsOutKind {
    /// A rank that did not end in order, while others did.
    Killed,
    /// A layer whose gradients stop while others go on.
    Stopped,
    /// A tensor unlike those of the same name in the other layers.
    Unlike,
    /// A step that took far longer than the others.
    SlowStep,
    /// The parameter that grew far more than the others.
    Grown,
}

/// How sure a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// 8 to 12 deviations: chance does so now and then in a large model.
    Possible,
    /// 12 to 25 deviations.
    Likely,
    /// 25 deviations and more.
    VeryLikely,
    /// A fact: a value that is not finite.
    Certain,
}

impl Certainty {
    /// Of so many deviations.
    pub(super) fn of(deviations: f64) -> Self {
        match deviations {
            deviations if deviations == f64::INFINITY => Self::Certain,
            deviations if deviations >= 25.0 => Self::VeryLikely,
            deviations if deviations >= 12.0 => Self::Likely,
            _ => Self::Possible,
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::VeryLikely => "very likely",
            Self::Certain => "certain",
        }
    }
}

/// A series that left what it was before.
#[derive(Clone, Debug, Serialize)]
pub struct Moved {
    /// Since when.
    pub step: u64,
    /// The last step of the bin it was found in; equal to `step` where every step was looked at.
    pub step_up_to: u64,
    /// Where.
    pub rank: u32,
    /// `loss`, `grad_reduced`.
    pub signal: String,
    /// `norm`, or the number's own name; absent for a curve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistic: Option<String>,
    /// The tensor; absent for the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    /// Its layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// How.
    pub direction: Direction,
    /// The value then.
    #[serde(with = "number")]
    pub value: f64,
    /// The median before.
    #[serde(with = "number::optional")]
    pub usual: Option<f64>,
    /// Deviations of what was before, at the farthest of the first nine values; infinite for one that is not finite.
    #[serde(with = "number")]
    pub deviations: f64,
    /// Values that it was held against.
    pub held_against: usize,
    /// How sure it is that this is no chance.
    pub certainty: Certainty,
    /// Whether the series ends where it was before.
    pub returned: bool,
}

/// An alert of the run's own rules.
#[derive(Clone, Debug, Serialize)]
pub struct ReportedAlert {
    /// When.
    pub step: u64,
    /// Where.
    pub rank: u32,
    /// Which rule.
    pub rule: AlertRule,
    /// How much it matters.
    pub severity: AlertSeverity,
    /// Whether it begins or is over.
    pub phase: AlertPhase,
    /// Findings it stands for.
    pub findings: u64,
    /// Of what, in words.
    pub series: String,
    /// The layer, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// What was found.
    #[serde(with = "number")]
    pub value: f64,
    /// What was usual.
    #[serde(with = "number::optional")]
    pub usual: Option<f64>,
    /// The largest or smallest value that would have been none, whichever was passed.
    #[serde(with = "number::optional")]
    pub bound: Option<f64>,
    /// What moved first, as the run's monitor saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_first: Option<String>,
    /// What the run said of it.
    pub message: String,
}

/// A curve in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct CurveSummary {
    /// Where.
    pub rank: u32,
    /// `loss`.
    pub name: String,
    /// Its first value.
    #[serde(with = "number::optional")]
    pub first: Option<f64>,
    /// Its newest value.
    #[serde(with = "number::optional")]
    pub last: Option<f64>,
    /// Its smallest finite value.
    #[serde(with = "number::optional")]
    pub smallest: Option<f64>,
    /// Its largest finite value, and the step of it, or of the first of the steps that share a bin.
    #[serde(with = "number::optional")]
    pub largest: Option<f64>,
    /// As above.
    pub largest_at: Option<u64>,
    /// Bins with a value that is not finite.
    pub not_finite: u64,
}

/// A rank in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct RankSummary {
    /// Which.
    pub rank: u32,
    /// Its steps.
    pub steps: u64,
    /// The first and the last of them.
    pub range: Option<(u64, u64)>,
    /// Steps in which tensors were measured.
    pub measured_steps: u64,
    /// Alerts, begun or ended.
    pub alerts: u64,
    /// Series that left what they were before.
    pub moved: u64,
    /// Records that were lost on their way.
    pub dropped: u64,
}

/// How the answer was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Method {
    /// Series looked at, curves and tensors.
    pub series: u64,
    /// Steps that share a value of a curve, at most.
    pub steps_per_value: u64,
    /// Measured steps that share a value of a tensor, at most.
    pub steps_per_tensor_value: u64,
    /// In words.
    pub words: &'static str,
}

/// What found no room, by what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Alerts.
    pub alerts: u64,
    /// Series that left what they were before.
    pub moved: u64,
    /// Curves.
    pub curves: u64,
    /// Ranks.
    pub ranks: u64,
    /// Sentences and warnings.
    pub sentences: u64,
    /// Names and messages that were shortened.
    pub shortened: u64,
}

impl Report {
    /// Whether the run's own rules found something.
    pub fn has_alert(&self) -> bool {
        !self.alerts.is_empty() || self.left_out.alerts > 0
    }
}
