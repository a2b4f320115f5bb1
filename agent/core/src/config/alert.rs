//! The alerts of the effective config: every rule with all its parameters.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AlertRule, AlertScope, AlertSeverity, AlertSignal, Kind, Statistic, StatisticSet};

/// Enough for ten thousand tensors with gradient and one moment: 20 MiB with full windows.
pub(super) const DEFAULT_MAX_SERIES: usize = 20_000;

/// The alert rules and their actions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alerting {
    /// The rules, in the order given.
    pub rules: Vec<Rule>,
    /// Whether every finding is written to a JSON file.
    pub dump: bool,
    /// The receiver of alerts.
    pub webhook: Option<Webhook>,
    /// The program run for each alert.
    pub command: Option<Command>,
    /// The most series the rules follow.
    pub max_series: usize,
}

impl Alerting {
    /// Whether alerts leave the process through a webhook or a command.
    pub fn is_sent(&self) -> bool {
        let is_wanted = self.rules.iter().any(|rule| rule.actions.webhook || rule.actions.command);
        is_wanted && (self.webhook.is_some() || self.command.is_some())
    }
}

/// A rule with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// The rule.
    pub rule: AlertRule,
    /// Its parameters.
    pub args: RuleArgs,
    /// The scope of a series.
    pub scope: AlertScope,
    /// The quantities; empty: every kind of tensor that is measured.
    pub signals: Vec<AlertSignal>,
    /// The prefixes of the names checked; empty: all.
    pub targets: Vec<String>,
    /// The runs to compare with; for `Baseline`, at least one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub golden: Vec<PathBuf>,
    /// The severity of its alerts.
    pub severity: AlertSeverity,
    /// Its actions.
    pub actions: AlertActions,
}

/// The parameters of a rule. A parameter that the rule does not have keeps its default and is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RuleArgs {
    /// The threshold; `None` for no threshold, which only `AnomalyNan` allows.
    pub threshold: Option<f64>,
    /// The number of steps in the window.
    pub window: usize,
    /// The number of values before the first alert.
    pub min_samples: usize,
    /// The minimum multiple of the mean that is a spike; `None`: depends on the signal.
    pub floor: Option<f64>,
    /// The number of consecutive steps that cause an alert.
    pub steps: u64,
    /// The minimum waiting time of a stall.
    pub seconds: f64,
}

/// The actions when an alert begins or ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "a set of actions")]
pub struct AlertActions {
    /// A line in the log.
    pub log: bool,
    /// A POST.
    pub webhook: bool,
    /// A run of the program.
    pub command: bool,
    /// A capture of the next steps.
    pub dump: bool,
    /// A capture of the step itself, run again.
    pub replay: bool,
    /// A request to end the training.
    pub stop: bool,
}

/// The receiver of alerts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Webhook {
    /// The URL, `http://` or `https://`.
    #[schemars(length(min = 1))]
    pub url: String,
    /// The timeout of one POST, in milliseconds.
    #[serde(default = "webhook_timeout_ms")]
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout_ms: u64,
    /// The number of retries after a failed POST.
    #[serde(default = "webhook_retries")]
    #[schemars(range(max = 100))]
    pub retries: u32,
}

fn webhook_timeout_ms() -> u64 {
    5_000
}

fn webhook_retries() -> u32 {
    4
}

/// A program that trainmon runs for each alert. It receives the alert as JSON on standard input and as environment variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Command {
    /// The program and its arguments. No shell interprets them.
    pub run: Vec<String>,
    /// The timeout in milliseconds; trainmon then kills the program.
    #[serde(default = "command_timeout_ms")]
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout_ms: u64,
}

fn command_timeout_ms() -> u64 {
    30_000
}

impl Default for Alerting {
    /// The alerting of a config that does not mention alerts.
    fn default() -> Self {
        let rules = [
            AlertRule::Spike,
            AlertRule::NonFinite,
            AlertRule::Collapse,
            AlertRule::Stall,
            AlertRule::NormMismatch,
            AlertRule::ReplicaMismatch,
        ];
        Self {
            rules: rules.map(Rule::by_default).into(),
            dump: false,
            webhook: None,
            command: None,
            max_series: DEFAULT_MAX_SERIES,
        }
    }
}

impl Alerting {
    /// The statistics of a kind that the rules require, independent of the columns.
    pub fn statistics(&self, kind: Kind) -> StatisticSet {
        // The root cause requires norms, and so do all rules except msprobe's and these. Three of these check values of the step or of
        // collective operations, one the columns, one the bytes.
        let of_the_step = |rule: &Rule| {
            use AlertRule::{Baseline, NormMismatch, ReplicaMismatch, Stall, Straggler};
            matches!(rule.rule, NormMismatch | Stall | Baseline | ReplicaMismatch | Straggler)
        };
        let needs = !self.rules.iter().all(of_the_step) && kind.value_columns().is_empty() && kind != Kind::MgDirection;
        if needs { StatisticSet::EMPTY.with(Statistic::Norm) } else { StatisticSet::EMPTY }
    }
}

impl RuleArgs {
    /// The default parameters of a rule.
    pub fn of_rule(rule: AlertRule) -> Self {
        let (threshold, min_samples) = match rule {
            // The value in msprobe's guide.
            AlertRule::AnomalyTurbulence => (Some(0.5), 0),
            AlertRule::AnomalyNan
            | AlertRule::NonFinite
            | AlertRule::Dead
            | AlertRule::Collapse
            | AlertRule::Baseline
            | AlertRule::ReplicaMismatch => (None, 0),
            AlertRule::Spike => (Some(4.0), 64),
            AlertRule::Vanishing => (Some(0.1), 256),
            // Below this, ranks differ by chance.
            AlertRule::Straggler => (Some(0.1), 0),
            AlertRule::UpdateRatio => (Some(0.01), 0),
            AlertRule::Drift => (Some(1.5), 512),
            AlertRule::Stall => (Some(10.0), 0),
            AlertRule::NormMismatch => (Some(crate::GRAD_NORM_TOLERANCE), 0),
        };
        let steps = if rule == AlertRule::Collapse { 32 } else { 10 };
        Self { threshold, window: 128, min_samples, floor: None, steps, seconds: 120.0 }
    }
}

impl Rule {
    /// A rule with its defaults.
    pub fn by_default(rule: AlertRule) -> Self {
        let kind = AlertSignal::Kind;
        let (scope, signals) = match rule {
            AlertRule::AnomalyTurbulence | AlertRule::AnomalyNan | AlertRule::Baseline | AlertRule::ReplicaMismatch => {
                (AlertScope::Tensor, Vec::new())
            }
            AlertRule::Spike => (AlertScope::Global, vec![AlertSignal::Grad, kind(Kind::Update), AlertSignal::Loss]),
            AlertRule::NonFinite => (
                AlertScope::Global,
                vec![
                    AlertSignal::Loss,
                    kind(Kind::Actv),
                    AlertSignal::Grad,
                    kind(Kind::ExpAvg),
                    kind(Kind::ExpAvgSq),
                    kind(Kind::Update),
                    kind(Kind::ParamUpdated),
                ],
            ),
            // A part of a layer may be dead while the rest of it changes.
            AlertRule::Dead => (AlertScope::Tensor, vec![AlertSignal::Grad]),
            AlertRule::Vanishing => (AlertScope::Global, vec![AlertSignal::Grad]),
            AlertRule::Drift => (AlertScope::Global, vec![AlertSignal::Grad, AlertSignal::Loss]),
            AlertRule::UpdateRatio => (AlertScope::Layer, vec![kind(Kind::UpdateRatio)]),
            AlertRule::Collapse => (AlertScope::Global, vec![AlertSignal::Loss]),
            AlertRule::Stall => (AlertScope::Global, vec![AlertSignal::StepTime]),
            AlertRule::NormMismatch => (AlertScope::Global, vec![AlertSignal::GradNormRatio]),
            AlertRule::Straggler => (AlertScope::Global, vec![AlertSignal::StragglerLag]),
        };
        let severity = match rule {
            AlertRule::AnomalyNan | AlertRule::NonFinite | AlertRule::Stall | AlertRule::ReplicaMismatch => {
                AlertSeverity::Critical
            }
            _ => AlertSeverity::Warning,
        };
        Self {
            rule,
            args: RuleArgs::of_rule(rule),
            scope,
            signals,
            targets: Vec::new(),
            golden: Vec::new(),
            severity,
            actions: AlertActions { log: true, ..AlertActions::default() },
        }
    }
}
