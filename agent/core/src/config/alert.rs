//! The alerts of the effective config: every rule with all its parameters.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::diagnostic::DiagnosticKind;
use super::file::{AlertAction, AlertArgsFile, AlertFile, AlertOnFile, AlertRuleFile, GoldenPaths, SignalNames};
use super::report::{Fault, Report};
use crate::{AlertRule, AlertScope, AlertSeverity, AlertSignal, Kind, Statistic, StatisticSet};

/// What is looked out for, and what is done then.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alerting {
    /// The rules, in the order given.
    pub rules: Vec<Rule>,
    /// Whether every finding is written to a JSON file.
    pub dump: bool,
    /// Where alerts are posted to.
    pub webhook: Option<Webhook>,
    /// What is run for each alert.
    pub command: Option<Command>,
    /// The most series the rules follow.
    pub max_series: usize,
}

/// A rule with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// Which rule.
    pub rule: AlertRule,
    /// Its parameters.
    pub args: RuleArgs,
    /// What of the model a series is of.
    pub scope: AlertScope,
    /// Which quantities; empty: every kind of tensor that is measured.
    pub signals: Vec<AlertSignal>,
    /// The beginnings of the names looked at; empty: all.
    pub targets: Vec<String>,
    /// The runs that this one is held against; of `Baseline`, which has one at least.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub golden: Vec<PathBuf>,
    /// How much its alerts matter.
    pub severity: AlertSeverity,
    /// What is done.
    pub actions: AlertActions,
}

/// The parameters of a rule; one that a rule does not have keeps its default and means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RuleArgs {
    /// The threshold; `None` for none, which only `AnomalyNan` knows.
    pub threshold: Option<f64>,
    /// The steps whose scatter counts.
    pub window: usize,
    /// Values seen before the rule speaks.
    pub min_samples: usize,
    /// The least multiple of the mean that is a spike; `None`: by signal.
    pub floor: Option<f64>,
    /// Steps in a row that make an alert.
    pub steps: u64,
    /// The least waiting time that is a stall.
    pub seconds: f64,
}

/// What is done when an alert begins or ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "a set of actions")]
pub struct AlertActions {
    /// A line in the log.
    pub log: bool,
    /// A POST.
    pub webhook: bool,
    /// A program run.
    pub command: bool,
    /// A dump of the next step.
    pub dump: bool,
    /// The training is asked to end.
    pub stop: bool,
}

/// Where alerts are posted to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Webhook {
    /// The address, `http://` or `https://`.
    #[schemars(length(min = 1))]
    pub url: String,
    /// The longest a POST may take, in milliseconds.
    #[serde(default = "webhook_timeout_ms")]
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout_ms: u64,
    /// How often a POST that failed is tried again.
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

/// A program that is run for each alert: it gets the alert as JSON on standard input and as environment variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Command {
    /// The program and its arguments. No shell reads them.
    pub run: Vec<String>,
    /// The longest it may run, in milliseconds; then it is killed.
    #[serde(default = "command_timeout_ms")]
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout_ms: u64,
}

fn command_timeout_ms() -> u64 {
    30_000
}

impl Default for Alerting {
    /// What a config that does not mention alerts looks out for.
    fn default() -> Self {
        let rules = [AlertRule::Spike, AlertRule::NonFinite, AlertRule::Stall, AlertRule::NormMismatch];
        let file = AlertFile::default();
        Self {
            rules: rules.map(Rule::by_default).into(),
            dump: false,
            webhook: None,
            command: None,
            max_series: file.max_series,
        }
    }
}

impl Alerting {
    /// The statistics of a kind that the rules need, whatever the columns are.
    pub fn statistics(&self, kind: Kind) -> StatisticSet {
        // What moved first is told by norms, and every rule but msprobe's looks at norms. Two look at facts of the step, one at
        // what the columns are.
        let of_the_step =
            |rule: &Rule| matches!(rule.rule, AlertRule::NormMismatch | AlertRule::Stall | AlertRule::Baseline);
        let needs = !self.rules.iter().all(of_the_step) && kind.value_columns().is_empty() && kind != Kind::MgDirection;
        if needs { StatisticSet::EMPTY.with(Statistic::Norm) } else { StatisticSet::EMPTY }
    }

    pub(super) fn of(file: &AlertFile, report: &mut Report<'_>) -> Self {
        let AlertFile { rules, dump, actions, webhook, command, max_series } = file;
        let (webhook, command) = (webhook.clone(), command.clone());
        if let Some(hook) = webhook.as_ref().filter(|hook| !is_http(&hook.url)) {
            let fault =
                Fault::new(DiagnosticKind::OutOfRange, format!("{:?}", hook.url)).expected("an http or https address");
            report.error(report.place("alert.webhook.url"), "alert.webhook.url", fault);
        }
        if command.as_ref().is_some_and(|command| command.run.first().is_none_or(String::is_empty)) {
            let fault = Fault::new(DiagnosticKind::OutOfRange, "no program").expected("a program and its arguments");
            report.error(report.place("alert.command.run"), "alert.command.run", fault);
        }
        let described = Described { webhook: webhook.is_some(), command: command.is_some() };
        let default_actions = match actions {
            Some(actions) => described.actions(actions, "alert.actions", report),
            None => AlertActions {
                log: true,
                webhook: described.webhook,
                command: described.command,
                ..AlertActions::default()
            },
        };
        let by_default = |rule: AlertRule| Rule { actions: default_actions, ..Rule::by_default(rule) };
        let mut rules: Vec<Rule> = match rules {
            None => Self::default().rules.into_iter().map(|rule| by_default(rule.rule)).collect(),
            Some(given) => {
                let rule = |(index, file)| Rule::of(file, index, default_actions, &described, report);
                given.iter().enumerate().map(rule).collect()
            }
        };
        let baselines = rules.iter().enumerate().filter(|(_, rule)| rule.rule == AlertRule::Baseline);
        for (index, _) in baselines.skip(1) {
            let key = format!("alert.rules[{index}].rule_name");
            let fault = Fault::new(DiagnosticKind::Conflict, "`Baseline` stands here a second time");
            report.error(
                report.place(&key),
                &key,
                fault.hint("name all golden runs in one rule: \"golden\": [\"a\", \"b\"]"),
            );
        }
        if !rules.iter().any(|rule| rule.rule == AlertRule::NormMismatch) {
            rules.push(by_default(AlertRule::NormMismatch));
        }
        Self { rules, dump: *dump, webhook, command, max_series: *max_series }
    }
}

fn is_http(url: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| url.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
}

/// Which actions have something to act with.
struct Described {
    webhook: bool,
    command: bool,
}

impl Described {
    fn actions(&self, given: &[AlertAction], key: &str, report: &mut Report<'_>) -> AlertActions {
        let mut actions = AlertActions::default();
        for action in given {
            let (flag, object, is_described) = match action {
                AlertAction::Log => (&mut actions.log, "", true),
                AlertAction::Webhook => (&mut actions.webhook, "webhook", self.webhook),
                AlertAction::Command => (&mut actions.command, "command", self.command),
                AlertAction::Dump => (&mut actions.dump, "", true),
                AlertAction::Stop => (&mut actions.stop, "", true),
            };
            *flag = true;
            if !is_described {
                let fault = Fault::new(DiagnosticKind::Conflict, format!("names `{object}`, which nothing describes"));
                report.error(report.place(key), key, fault.hint(format!("add an object `alert.{object}`")));
            }
        }
        actions
    }
}

/// What msprobe's rules look at where they are asked to look at sums instead of every tensor.
const SUMMED: [AlertSignal; 7] = [
    AlertSignal::Kind(Kind::Actv),
    AlertSignal::Kind(Kind::ActvGrad),
    AlertSignal::Grad,
    AlertSignal::Kind(Kind::ExpAvg),
    AlertSignal::Kind(Kind::ExpAvgSq),
    AlertSignal::Kind(Kind::Update),
    AlertSignal::Kind(Kind::ParamUpdated),
];

/// Which parameters a rule has.
fn knows(rule: AlertRule) -> &'static [&'static str] {
    match rule {
        AlertRule::AnomalyTurbulence | AlertRule::AnomalyNan | AlertRule::NormMismatch => &["threshold"],
        AlertRule::Spike => &["threshold", "window", "min_samples", "floor"],
        AlertRule::NonFinite | AlertRule::Baseline => &[],
        AlertRule::Dead => &["steps"],
        AlertRule::Vanishing | AlertRule::Drift => &["threshold", "min_samples"],
        AlertRule::UpdateRatio => &["threshold", "steps"],
        AlertRule::Stall => &["threshold", "seconds"],
    }
}

impl RuleArgs {
    /// A rule's own.
    pub fn of_rule(rule: AlertRule) -> Self {
        let (threshold, min_samples) = match rule {
            // What msprobe's guide uses.
            AlertRule::AnomalyTurbulence => (Some(0.5), 0),
            AlertRule::AnomalyNan | AlertRule::NonFinite | AlertRule::Dead | AlertRule::Baseline => (None, 0),
            AlertRule::Spike => (Some(4.0), 64),
            AlertRule::Vanishing => (Some(0.1), 256),
            AlertRule::UpdateRatio => (Some(0.01), 0),
            AlertRule::Drift => (Some(1.5), 512),
            AlertRule::Stall => (Some(10.0), 0),
            AlertRule::NormMismatch => (Some(crate::GRAD_NORM_TOLERANCE), 0),
        };
        Self { threshold, window: 128, min_samples, floor: None, steps: 10, seconds: 120.0 }
    }

    fn of(rule: AlertRule, file: &AlertArgsFile, key: &str, report: &mut Report<'_>) -> Self {
        let AlertArgsFile { threshold, window, min_samples, floor, steps, seconds } = file;
        let given = [
            ("threshold", threshold.is_some()),
            ("window", window.is_some()),
            ("min_samples", min_samples.is_some()),
            ("floor", floor.is_some()),
            ("steps", steps.is_some()),
            ("seconds", seconds.is_some()),
        ];
        for (name, _) in given.into_iter().filter(|(name, is_given)| *is_given && !knows(rule).contains(name)) {
            let key = format!("{key}.{name}");
            let hint = match knows(rule) {
                [] => format!("`{rule}` has no parameters"),
                names => format!("`{rule}` has {}", names.join(", ")),
            };
            report.error(
                report.place(&key),
                &key,
                Fault::new(DiagnosticKind::UnknownKey, "not known to this rule").hint(hint),
            );
        }
        let own = Self::of_rule(rule);
        let args = Self {
            threshold: threshold.or(own.threshold),
            window: window.unwrap_or(own.window),
            min_samples: min_samples.unwrap_or(own.min_samples),
            floor: floor.or(own.floor),
            steps: steps.unwrap_or(own.steps),
            seconds: seconds.unwrap_or(own.seconds),
        };
        if rule == AlertRule::Spike && args.min_samples > args.window {
            let key = format!("{key}.min_samples");
            let found = format!("{}, but the window has {} steps", args.min_samples, args.window);
            report.error(report.place(&key), &key, Fault::new(DiagnosticKind::Conflict, found).hint("raise `window`"));
        }
        args
    }
}

impl Rule {
    /// A rule as it is without a word about it.
    pub fn by_default(rule: AlertRule) -> Self {
        let kind = AlertSignal::Kind;
        let (scope, signals) = match rule {
            AlertRule::AnomalyTurbulence | AlertRule::AnomalyNan | AlertRule::Baseline => {
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
            AlertRule::Dead => (AlertScope::Layer, vec![AlertSignal::Grad]),
            AlertRule::Vanishing | AlertRule::Drift => (AlertScope::Global, vec![AlertSignal::Grad]),
            AlertRule::UpdateRatio => (AlertScope::Layer, vec![kind(Kind::UpdateRatio)]),
            AlertRule::Stall => (AlertScope::Global, vec![AlertSignal::StepTime]),
            AlertRule::NormMismatch => (AlertScope::Global, vec![AlertSignal::GradNormRatio]),
        };
        let severity = match rule {
            AlertRule::AnomalyNan | AlertRule::NonFinite | AlertRule::Stall => AlertSeverity::Critical,
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

    fn of(
        file: &AlertRuleFile,
        index: usize,
        default_actions: AlertActions,
        described: &Described,
        report: &mut Report<'_>,
    ) -> Self {
        let AlertRuleFile { rule_name: rule, args, on, golden, severity, actions } = file;
        let key = format!("alert.rules[{index}]");
        let own = Self::by_default(*rule);
        let args = RuleArgs::of(*rule, args, &format!("{key}.args"), report);
        let actions = match actions {
            Some(actions) => described.actions(actions, &format!("{key}.actions"), report),
            None => default_actions,
        };
        let AlertOnFile { scope, signal, targets } = on;
        let is_tensor = |signal: &AlertSignal| matches!(signal, AlertSignal::Grad | AlertSignal::Kind(_));
        let signals = match signal {
            None if own.signals.is_empty() && scope.is_some_and(|scope| scope != AlertScope::Tensor) => SUMMED.to_vec(),
            None if scope.is_some_and(|scope| scope != AlertScope::Global) => {
                own.signals.iter().copied().filter(is_tensor).collect()
            }
            None => own.signals.clone(),
            Some(SignalNames::One(one)) => vec![*one],
            Some(SignalNames::Several(several)) => several.clone(),
        };
        let chosen = Self {
            rule: *rule,
            args,
            scope: scope.unwrap_or(own.scope),
            signals,
            targets: targets.clone(),
            golden: match golden {
                None => Vec::new(),
                Some(GoldenPaths::One(one)) => vec![one.clone()],
                Some(GoldenPaths::Several(several)) => several.clone(),
            },
            severity: severity.unwrap_or(own.severity),
            actions,
        };
        chosen.check(&own, on, &format!("{key}.on"), report);
        chosen.check_golden(on, golden.as_ref(), &key, report);
        chosen
    }

    fn check_golden(&self, on: &AlertOnFile, golden: Option<&GoldenPaths>, rule_key: &str, report: &mut Report<'_>) {
        let key = format!("{rule_key}.golden");
        if self.rule != AlertRule::Baseline {
            if report.has(&key) {
                let fault = Fault::new(DiagnosticKind::Conflict, format!("`{}` is held against no run", self.rule));
                report.error(report.place(&key), &key, fault.hint("leave `golden` out, or name the rule `Baseline`"));
            }
            return;
        }
        let is_missing = match golden {
            // One that is no path was refused as such.
            None => !report.has(&key),
            Some(GoldenPaths::One(path)) => path.as_os_str().is_empty(),
            Some(GoldenPaths::Several(paths)) => {
                paths.is_empty() || paths.iter().any(|path| path.as_os_str().is_empty())
            }
        };
        if is_missing {
            let fault = Fault::new(DiagnosticKind::MissingKey, "no run to be held against")
                .expected("a run's directory or journal");
            report.error(
                report.place(if report.has(&key) { &key } else { rule_key }),
                &key,
                fault.hint("add \"golden\": \"monitor_output/RUN\""),
            );
        }
        if on.scope.is_some() || on.signal.is_some() || !on.targets.is_empty() {
            let key = format!("{rule_key}.on");
            let fault = Fault::new(DiagnosticKind::Conflict, "`Baseline` looks at all that both runs measured");
            report.error(report.place(&key), &key, fault.hint("leave `on` out"));
        }
    }

    fn check(&self, own: &Self, on: &AlertOnFile, key: &str, report: &mut Report<'_>) {
        let mut refuse = |name: &str, found: String, hint: &str| {
            let key = format!("{key}.{name}");
            report.error(report.place(&key), &key, Fault::new(DiagnosticKind::Conflict, found).hint(hint));
        };
        let only = matches!(self.rule, AlertRule::Stall | AlertRule::NormMismatch | AlertRule::UpdateRatio);
        if only && on.signal.is_some() && self.signals != own.signals {
            refuse("signal", format!("`{}` looks at `{}` only", self.rule, own.signals[0]), "leave `signal` out");
        }
        if !self.targets.is_empty() && self.scope == AlertScope::Global {
            refuse(
                "targets",
                "a rule on the whole run has no targets".to_owned(),
                "add \"scope\": \"layer\" or \"tensor\"",
            );
        }
        for signal in &self.signals {
            let is_number = !matches!(signal, AlertSignal::Grad | AlertSignal::Kind(_));
            if is_number && on.scope.is_some_and(|scope| scope != AlertScope::Global) {
                refuse("scope", format!("`{signal}` is one number for the run"), "write \"global\", or leave it out");
            }
            if is_number && !only && matches!(signal, AlertSignal::GradNormRatio | AlertSignal::StepTime) {
                refuse("signal", format!("`{signal}` has a rule of its own"), "use `NormMismatch` or `Stall`");
            }
            if matches!(signal, AlertSignal::Kind(kind) if kind.is_feature()) {
                refuse("signal", format!("`{signal}` is a module's feature, not a tensor"), "name a kind of tensor");
            }
            if *signal == AlertSignal::Kind(Kind::Scalar) {
                let found = format!("`{signal}` is what the script tells, and no rule looks at it");
                refuse("signal", found, "name a kind of tensor, or `loss`");
            }
        }
    }
}
