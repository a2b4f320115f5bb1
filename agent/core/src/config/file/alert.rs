//! The keys of `alert`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::config::alert::DEFAULT_MAX_SERIES;
use crate::config::{Command, Webhook};
use crate::{AlertRule, AlertScope, AlertSeverity, AlertSignal};

/// The alert rules and their actions.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct AlertFile {
    /// The rules. Default: `Spike`, `NonFinite`, `Collapse` and `Stall` with their defaults. Empty: none. `NormMismatch` is
    /// always on if a framework reports its norm, `ReplicaMismatch` unless `replica_interval` is 0.
    #[schemars(extend("x-msprobe" = "`AnomalyTurbulence` and `AnomalyNan` only; `alert` without `rules` is a KeyError"))]
    pub(in crate::config) rules: Option<Vec<AlertRuleFile>>,
    /// Also write every finding to `anomaly_detected/rank<R>/anomaly.json`.
    pub(in crate::config) dump: bool,
    /// The actions when an alert begins and ends, if its rule has none. Default: `log`, and `webhook` and `command` if
    /// configured. Counters, exporters and the JSON file always receive it.
    #[schemars(extend("x-msprobe" = "always logs"))]
    pub(in crate::config) actions: Option<Vec<AlertAction>>,
    /// The receiver of alerts as JSON.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) webhook: Option<Webhook>,
    /// A program run for each alert.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) command: Option<Command>,
    /// The maximum number of series checked; values of further ones are only counted.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[schemars(extend("x-msprobe" = "no limit"))]
    #[default(DEFAULT_MAX_SERIES)]
    pub(in crate::config) max_series: usize,
}

impl AlertFile {
    /// The first action of an alert that requests a capture, if any.
    pub(in crate::config) fn capturing_action(&self) -> Option<AlertAction> {
        let of_rules = self.rules.iter().flatten().filter_map(|rule| rule.actions.as_ref());
        let all = of_rules.chain(&self.actions).flatten().copied();
        all.filter(|action| matches!(action, AlertAction::Dump | AlertAction::Replay))
            .max_by_key(|action| *action == AlertAction::Replay)
    }
}

/// One rule.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct AlertRuleFile {
    /// The rule's name.
    pub(in crate::config) rule_name: AlertRule,
    /// The rule's parameters.
    #[serde(default)]
    pub(in crate::config) args: AlertArgsFile,
    /// The series that the rule checks.
    #[serde(default)]
    #[schemars(extend("x-msprobe" = "always every statistic of every tensor"))]
    pub(in crate::config) on: AlertOnFile,
    /// `Baseline`: one or more runs to compare with, each a run's or a rank's directory or a journal.
    #[serde(default)]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) golden: Option<GoldenPaths>,
    /// The severity of the rule's alerts. Default: the rule's own.
    #[serde(default)]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) severity: Option<AlertSeverity>,
    /// The rule's actions, instead of `alert.actions`.
    #[serde(default)]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) actions: Option<Vec<AlertAction>>,
}

/// The parameters of a rule. [Alerts](alerts.md) lists those of each rule and their defaults.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct AlertArgsFile {
    /// The threshold: a share (`AnomalyTurbulence`, `NormMismatch`, `Straggler`), a magnitude (`AnomalyNan`), standard deviations
    /// (`Spike`; for a loss, units of 2.5 median absolute deviations), a factor (`Vanishing`, `Drift`, `Stall`) or a ratio
    /// (`UpdateRatio`).
    #[schemars(range(min = 0))]
    pub(in crate::config) threshold: Option<f64>,
    /// `Spike`: the number of steps in the window.
    #[schemars(range(min = 2, max = 4096))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) window: Option<usize>,
    /// `Spike`, `Vanishing`, `Drift`: the number of values before the first alert.
    #[schemars(range(min = 2, max = 1_000_000))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) min_samples: Option<usize>,
    /// `Spike`: the minimum multiple of the mean (for a loss: of the median) that is a spike.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) floor: Option<f64>,
    /// `Dead`, `UpdateRatio`: the number of consecutive steps that cause an alert.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) steps: Option<u64>,
    /// `Stall`: the minimum waiting time of a stall, in seconds.
    #[schemars(range(min = 0.1, max = 86_400))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) seconds: Option<f64>,
}

/// The series that a rule checks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct AlertOnFile {
    /// One series per run, group, layer or tensor. Norms are combined over a series.
    pub(in crate::config) scope: Option<AlertScope>,
    /// The quantities: `loss`, `learning_rate`, `grad` (before clipping if measured) or kinds of tensors.
    pub(in crate::config) signal: Option<SignalNames>,
    /// Prefixes of the tensor, layer or group names (depending on `scope`). Empty: all.
    pub(in crate::config) targets: Vec<String>,
}

/// One signal or several.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::config) enum SignalNames {
    /// One.
    One(AlertSignal),
    /// Several.
    Several(Vec<AlertSignal>),
}

/// One run or several.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::config) enum GoldenPaths {
    /// One.
    One(PathBuf),
    /// Several runs. Their differences estimate the variation between runs.
    Several(Vec<PathBuf>),
}

/// The action when an alert begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum AlertAction {
    /// A line in the log.
    Log,
    /// A POST to the webhook.
    Webhook,
    /// A run of the command.
    Command,
    /// A capture of the next steps on all ranks, as configured in `capture`.
    Dump,
    /// A capture of the step itself, run again if every rank keeps it (`capture.replay`), else of the next step.
    Replay,
    /// A request to end the training: `stop_requested()` returns true.
    Stop,
}
