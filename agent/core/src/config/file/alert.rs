//! The keys of `alert`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::config::alert::DEFAULT_MAX_SERIES;
use crate::config::{Command, Webhook};
use crate::{AlertRule, AlertScope, AlertSeverity, AlertSignal};

/// What to look out for, and what to do then.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct AlertFile {
    /// The rules. Absent: `Spike`, `NonFinite`, `Collapse` and `Stall` with their defaults; an empty list: none. `NormMismatch` always
    /// looks where a framework reports its norm, `ReplicaMismatch` where `replica_interval` is not 0.
    #[schemars(extend("x-msprobe" = "`AnomalyTurbulence` and `AnomalyNan` only; `alert` without `rules` is a KeyError"))]
    pub(in crate::config) rules: Option<Vec<AlertRuleFile>>,
    /// Write every finding to `anomaly_detected/rank<R>/anomaly.json` too.
    pub(in crate::config) dump: bool,
    /// What is done when an alert begins and ends, unless a rule says otherwise. Absent: `log`, and `webhook` and
    /// `command` where they are described. Counters, exporters and the JSON file always get it.
    #[schemars(extend("x-msprobe" = "not in msprobe, which logs"))]
    pub(in crate::config) actions: Option<Vec<AlertAction>>,
    /// Where alerts are posted to as JSON.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) webhook: Option<Webhook>,
    /// A program that is run for each alert.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) command: Option<Command>,
    /// The most series the rules follow; values of more are counted, not looked at.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[schemars(extend("x-msprobe" = "not in msprobe, whose history has no bound"))]
    #[default(DEFAULT_MAX_SERIES)]
    pub(in crate::config) max_series: usize,
}

impl AlertFile {
    /// The action of an alert's that asks for a capture, if there is one.
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
    /// Which rule.
    pub(in crate::config) rule_name: AlertRule,
    /// Its parameters.
    #[serde(default)]
    pub(in crate::config) args: AlertArgsFile,
    /// What it looks at.
    #[serde(default)]
    #[schemars(extend("x-msprobe" = "not in msprobe: every statistic of every tensor"))]
    pub(in crate::config) on: AlertOnFile,
    /// `Baseline`: the run that this one is held against, or several of them: a run's directory, that of one rank, or a journal.
    #[serde(default)]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) golden: Option<GoldenPaths>,
    /// How much its alerts matter. Absent: the rule's own.
    #[serde(default)]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) severity: Option<AlertSeverity>,
    /// What is done then, instead of `alert.actions`.
    #[serde(default)]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) actions: Option<Vec<AlertAction>>,
}

/// The parameters of a rule. Each rule has some of them; `docs/alerts.md` says which, and their defaults.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct AlertArgsFile {
    /// The rule's threshold: a share (`AnomalyTurbulence`, `NormMismatch`, `Straggler`), a magnitude (`AnomalyNan`), standard
    /// deviations (`Spike`; of a loss 2.5 median absolute deviations each), a factor (`Vanishing`, `Drift`, `Stall`), a ratio (`UpdateRatio`).
    #[schemars(range(min = 0))]
    pub(in crate::config) threshold: Option<f64>,
    /// `Spike`: the steps whose scatter counts.
    #[schemars(range(min = 2, max = 4096))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) window: Option<usize>,
    /// `Spike`, `Vanishing`, `Drift`: the values seen before the rule speaks.
    #[schemars(range(min = 2, max = 1_000_000))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) min_samples: Option<usize>,
    /// `Spike`: the least multiple of the mean (of a loss: of the median) that is a spike, however calm the window is.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) floor: Option<f64>,
    /// `Dead`, `UpdateRatio`: the steps in a row that make an alert.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) steps: Option<u64>,
    /// `Stall`: the least waiting time that is a stall, in seconds, however short the steps are.
    #[schemars(range(min = 0.1, max = 86_400))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub(in crate::config) seconds: Option<f64>,
}

/// What a rule looks at.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct AlertOnFile {
    /// One series for the run, per group, per layer or per tensor. Norms are put together over what a series covers.
    pub(in crate::config) scope: Option<AlertScope>,
    /// Which quantities: `loss`, `learning_rate`, `grad` (before clipping where that is measured), or kinds of tensors.
    pub(in crate::config) signal: Option<SignalNames>,
    /// Only names that begin with one of these: of tensors, layers or groups, as the scope is. Empty: all.
    pub(in crate::config) targets: Vec<String>,
}

/// One signal, or several.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::config) enum SignalNames {
    /// One.
    One(AlertSignal),
    /// Several.
    Several(Vec<AlertSignal>),
}

/// One run, or several.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::config) enum GoldenPaths {
    /// One.
    One(PathBuf),
    /// Several: how far they are from one another is the measure.
    Several(Vec<PathBuf>),
}

/// What to do when an alert begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum AlertAction {
    /// A line in the log.
    Log,
    /// A POST to the webhook.
    Webhook,
    /// A run of the command.
    Command,
    /// A capture of the next steps, as `capture` describes it; all ranks the same.
    Dump,
    /// A capture of the step itself, which is run again where every rank keeps it (`capture.replay`); else of the next step.
    Replay,
    /// Ask the training to end: `stop_requested()` turns true.
    Stop,
}
