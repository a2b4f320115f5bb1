//! The report's data, from which JSON and Markdown are written.

use serde::Serialize;
use trainmon_core::{AlertPhase, AlertRule, AlertSeverity, number};
use trainmon_runs::NewestRun;

pub use super::movement::Direction;

/// Increases with every change that an older reader would misinterpret.
pub const VERSION: u32 = 1;

/// The evidence from a run, at most 256 KB as JSON and as Markdown, independent of the run's size.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The program's version.
    pub trainmon: &'static str,
    /// The run's name.
    pub run: String,
    /// The chosen run, if the directory holds several.
    pub newest: Option<NewestRun>,
    /// For another tool's log: the columns read and guessed, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// The number of ranks.
    pub world_size: u32,
    /// The summary sentence.
    pub summary: String,
    /// Next steps, the most informative first.
    pub next: Vec<NextStep>,
    /// Series that left their usual range, the earliest first.
    pub moved: Vec<Moved>,
    /// Other findings, the most informative first.
    pub stands_out: Vec<StandsOut>,
    /// Alerts, oldest first.
    pub alerts: Vec<ReportedAlert>,
    /// The run's curves.
    pub curves: Vec<CurveSummary>,
    /// A summary of each rank.
    pub ranks: Vec<RankSummary>,
    /// Quantities that the run did not measure, one sentence each.
    pub not_measured: Vec<String>,
    /// How the report was made.
    pub method: Method,
    /// Problems in the files, one sentence each.
    pub warnings: Vec<String>,
    /// The number of entries that did not fit.
    pub left_out: LeftOut,
}

/// A measurement or command that answers an open question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// The open question.
    pub question: String,
    /// The thing to run or capture.
    pub action: String,
    /// A command that does it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// A finding that does not require a series to move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StandsOut {
    /// The kind of finding.
    pub kind: StandsOutKind,
    /// The step in which it began or happened; absent if it applies to the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The rank; the first of several.
    pub rank: u32,
    /// The layer, the tensor or the curve.
    pub name: String,
    /// A sentence without its full stop.
    pub words: String,
}

/// Kinds of findings, the most informative first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StandsOutKind {
    /// A rank that did not end cleanly while others did.
    Killed,
    /// A layer whose gradients stop while others continue.
    Stopped,
    /// A tensor unlike the tensors of the same name in other layers.
    Unlike,
    /// A step that took much longer than the others.
    SlowStep,
    /// The parameter that grew much more than the others.
    Grown,
}

/// How certain a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// 8 to 12 deviations: this happens by chance now and then in a large model.
    Possible,
    /// 12 to 25 deviations.
    Likely,
    /// At least 25 deviations.
    VeryLikely,
    /// A fact: a non-finite value.
    Certain,
}

impl Certainty {
    /// The certainty of a departure by its deviations.
    pub(super) fn of(deviations: f64) -> Self {
        match deviations {
            deviations if deviations == f64::INFINITY => Self::Certain,
            deviations if deviations >= 25.0 => Self::VeryLikely,
            deviations if deviations >= 12.0 => Self::Likely,
            _ => Self::Possible,
        }
    }

    /// The certainty as words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::VeryLikely => "very likely",
            Self::Certain => "certain",
        }
    }
}

/// A series that left its usual range.
#[derive(Clone, Debug, Serialize)]
pub struct Moved {
    /// The step in which it left.
    pub step: u64,
    /// The last step of the bin in which it was found; equal to `step` if every step was examined.
    pub step_up_to: u64,
    /// The rank.
    pub rank: u32,
    /// The signal: `loss`, `grad_reduced`.
    pub signal: String,
    /// The statistic: `norm`, or the number's own name; absent for a curve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistic: Option<String>,
    /// The tensor; absent for a number of the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    /// The tensor's layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// The direction of the change.
    pub direction: Direction,
    /// The first value outside the usual range.
    #[serde(with = "number")]
    pub value: f64,
    /// The median of the values before.
    #[serde(with = "number::optional")]
    pub usual: Option<f64>,
    /// The distance of the farthest of the first nine values from the values before, in deviations; infinite for a
    /// non-finite value.
    #[serde(with = "number")]
    pub deviations: f64,
    /// The number of values before that were used for the comparison.
    pub held_against: usize,
    /// How certain it is that this is not chance.
    pub certainty: Certainty,
    /// Whether the series returned to its usual range by the end.
    pub returned: bool,
}

/// An alert of the run's own rules.
#[derive(Clone, Debug, Serialize)]
pub struct ReportedAlert {
    /// The step.
    pub step: u64,
    /// The rank.
    pub rank: u32,
    /// The rule.
    pub rule: AlertRule,
    /// The severity.
    pub severity: AlertSeverity,
    /// Whether the alert begins or ends.
    pub phase: AlertPhase,
    /// The number of findings that the alert summarizes.
    pub findings: u64,
    /// The series, in words.
    pub series: String,
    /// The layer, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// The value that was found.
    #[serde(with = "number")]
    pub value: f64,
    /// The usual value.
    #[serde(with = "number::optional")]
    pub usual: Option<f64>,
    /// The threshold that the value crossed.
    #[serde(with = "number::optional")]
    pub bound: Option<f64>,
    /// The root cause that the run's monitor found: the series that moved first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_first: Option<String>,
    /// The alert's message.
    pub message: String,
}

/// The summary of a curve.
#[derive(Clone, Debug, Serialize)]
pub struct CurveSummary {
    /// The rank.
    pub rank: u32,
    /// The curve: `loss`.
    pub name: String,
    /// The first value.
    #[serde(with = "number::optional")]
    pub first: Option<f64>,
    /// The newest value.
    #[serde(with = "number::optional")]
    pub last: Option<f64>,
    /// The smallest finite value.
    #[serde(with = "number::optional")]
    pub smallest: Option<f64>,
    /// The largest finite value.
    #[serde(with = "number::optional")]
    pub largest: Option<f64>,
    /// The step of the largest value, or the first of the steps that share its bin.
    pub largest_at: Option<u64>,
    /// The number of bins with a non-finite value.
    pub not_finite: u64,
}

/// The summary of a rank.
#[derive(Clone, Debug, Serialize)]
pub struct RankSummary {
    /// The rank.
    pub rank: u32,
    /// The number of steps.
    pub steps: u64,
    /// The first and the last step.
    pub range: Option<(u64, u64)>,
    /// The number of steps in which tensors were measured.
    pub measured_steps: u64,
    /// The number of alerts, begun or ended.
    pub alerts: u64,
    /// The number of series that left their usual range.
    pub moved: u64,
    /// The number of dropped records.
    pub dropped: u64,
}

/// How the report was made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Method {
    /// The number of examined series, curves and tensors.
    pub series: u64,
    /// The largest number of steps that share one value of a curve.
    pub steps_per_value: u64,
    /// The largest number of measured steps that share one value of a tensor.
    pub steps_per_tensor_value: u64,
    /// The method as text.
    pub words: &'static str,
}

/// The number of entries that did not fit, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Alerts.
    pub alerts: u64,
    /// Series that left their usual range.
    pub moved: u64,
    /// Curves.
    pub curves: u64,
    /// Ranks.
    pub ranks: u64,
    /// Sentences and warnings.
    pub sentences: u64,
    /// Shortened names and messages.
    pub shortened: u64,
}

impl Report {
    /// Whether the run's own rules raised an alert.
    pub fn has_alert(&self) -> bool {
        !self.alerts.is_empty() || self.left_out.alerts > 0
    }
}
