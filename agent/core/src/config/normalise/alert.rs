//! Completes the alerts of a file with their defaults.

use crate::config::alert::{AlertActions, Alerting, Rule, RuleArgs};
use crate::config::diagnostic::DiagnosticKind;
use crate::config::effective::Config;
use crate::config::file::{
    AlertAction, AlertArgsFile, AlertFile, AlertOnFile, AlertRuleFile, GoldenPaths, SignalNames,
};
use crate::config::report::{Fault, Report};
use crate::{AlertRule, AlertScope, AlertSignal, Kind};

impl Alerting {
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
            let fault = Fault::new(DiagnosticKind::Conflict, "second `Baseline` rule");
            report.error(
                report.place(&key),
                &key,
                fault.hint("list all golden runs in one rule: \"golden\": [\"a\", \"b\"]"),
            );
        }
        for always in [AlertRule::NormMismatch, AlertRule::ReplicaMismatch] {
            if !rules.iter().any(|rule| rule.rule == always) {
                rules.push(by_default(always));
            }
        }
        Self { rules, dump: *dump, webhook, command, max_series: *max_series }
    }
}

/// Warns of rules whose signals are not measured.
pub(super) fn check_measured(config: &Config, file: &AlertFile, update_key: &str, report: &mut Report<'_>) {
    let rules = config.alert.rules.iter().take(file.rules.as_ref().map_or(0, Vec::len));
    for (index, rule) in rules.enumerate() {
        let kind_of = |signal: &AlertSignal| match signal {
            AlertSignal::Kind(kind) => Some(*kind),
            _ => None,
        };
        let kinds: Option<Vec<Kind>> = rule.signals.iter().map(kind_of).collect();
        let Some(kinds) = kinds.filter(|kinds| !kinds.is_empty()) else { continue };
        if kinds.iter().any(|kind| config.measures(*kind)) {
            continue;
        }
        let key = format!("alert.rules[{index}].rule_name");
        let names: Vec<String> = kinds.iter().map(|kind| format!("`{kind}`")).collect();
        let found = format!("`{}` checks {}, which is not measured", rule.rule, names.join(", "));
        if rule.rule == AlertRule::UpdateRatio {
            let hint = format!("add {update_key}, or remove the rule");
            report.error(report.place(&key), &key, Fault::new(DiagnosticKind::Conflict, found).hint(hint));
        } else {
            let hint =
                "measure it, or remove the rule; it becomes active if `trainmon ctl` enables the measurement later";
            report.warn(report.place(&key), &key, Fault::new(DiagnosticKind::NoEffect, found).hint(hint));
        }
    }
}

fn is_http(url: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| url.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
}

/// The actions that have a receiver.
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
                AlertAction::Replay => (&mut actions.replay, "", true),
                AlertAction::Stop => (&mut actions.stop, "", true),
            };
            *flag = true;
            if !is_described {
                let fault = Fault::new(DiagnosticKind::Conflict, format!("`{object}` is not configured"));
                report.error(report.place(key), key, fault.hint(format!("add an object `alert.{object}`")));
            }
        }
        actions
    }
}

/// The signals of msprobe's rules when they check sums instead of single tensors.
const SUMMED: [AlertSignal; 7] = [
    AlertSignal::Kind(Kind::Actv),
    AlertSignal::Kind(Kind::ActvGrad),
    AlertSignal::Grad,
    AlertSignal::Kind(Kind::ExpAvg),
    AlertSignal::Kind(Kind::ExpAvgSq),
    AlertSignal::Kind(Kind::Update),
    AlertSignal::Kind(Kind::ParamUpdated),
];

/// The parameters of a rule.
fn knows(rule: AlertRule) -> &'static [&'static str] {
    match rule {
        AlertRule::AnomalyTurbulence | AlertRule::AnomalyNan | AlertRule::NormMismatch | AlertRule::Straggler => {
            &["threshold"]
        }
        AlertRule::Spike => &["threshold", "window", "min_samples", "floor"],
        AlertRule::NonFinite | AlertRule::Baseline | AlertRule::ReplicaMismatch => &[],
        AlertRule::Dead | AlertRule::Collapse => &["steps"],
        AlertRule::Vanishing | AlertRule::Drift => &["threshold", "min_samples"],
        AlertRule::UpdateRatio => &["threshold", "steps"],
        AlertRule::Stall => &["threshold", "seconds"],
    }
}

impl RuleArgs {
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
                Fault::new(DiagnosticKind::UnknownKey, "not a parameter of this rule").hint(hint),
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
                let fault = Fault::new(DiagnosticKind::Conflict, format!("`{}` compares with no run", self.rule));
                report.error(report.place(&key), &key, fault.hint("remove `golden`, or use the rule `Baseline`"));
            }
            return;
        }
        let is_missing = match golden {
            // A value that is not a path was already refused.
            None => !report.has(&key),
            Some(GoldenPaths::One(path)) => path.as_os_str().is_empty(),
            Some(GoldenPaths::Several(paths)) => {
                paths.is_empty() || paths.iter().any(|path| path.as_os_str().is_empty())
            }
        };
        if is_missing {
            let fault = Fault::new(DiagnosticKind::MissingKey, "no run to compare with")
                .expected("a run's directory or journal");
            report.error(
                report.place(if report.has(&key) { &key } else { rule_key }),
                &key,
                fault.hint("add \"golden\": \"monitor_output/RUN\""),
            );
        }
        if on.scope.is_some() || on.signal.is_some() || !on.targets.is_empty() {
            let key = format!("{rule_key}.on");
            let fault = Fault::new(DiagnosticKind::Conflict, "`Baseline` checks everything that both runs measured");
            report.error(report.place(&key), &key, fault.hint("remove `on`"));
        }
    }

    fn check(&self, own: &Self, on: &AlertOnFile, key: &str, report: &mut Report<'_>) {
        use AlertRule::{Collapse, NormMismatch, Stall, Straggler, UpdateRatio};
        let mut refuse = |name: &str, found: String, hint: &str| {
            let key = format!("{key}.{name}");
            report.error(report.place(&key), &key, Fault::new(DiagnosticKind::Conflict, found).hint(hint));
        };
        if self.rule == AlertRule::ReplicaMismatch {
            let given =
                [("scope", on.scope.is_some()), ("signal", on.signal.is_some()), ("targets", !on.targets.is_empty())];
            for (name, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
                refuse(name, "`ReplicaMismatch` checks every copy".to_owned(), "remove it");
            }
        }
        let only = matches!(self.rule, Collapse | Stall | NormMismatch | UpdateRatio | Straggler);
        if only && on.signal.is_some() && self.signals != own.signals {
            refuse("signal", format!("`{}` checks only `{}`", self.rule, own.signals[0]), "remove `signal`");
        }
        let is_wide = on.scope.is_none_or(|scope| scope == AlertScope::Global);
        if matches!(self.rule, Collapse | Stall | NormMismatch | Straggler) && !is_wide {
            refuse("scope", format!("`{}` checks one number of the run", self.rule), "remove `scope`");
        }
        if !self.targets.is_empty() && self.scope == AlertScope::Global {
            refuse(
                "targets",
                "a rule for the whole run has no targets".to_owned(),
                "add \"scope\": \"layer\" or \"tensor\"",
            );
        }
        for signal in &self.signals {
            let is_number = !matches!(signal, AlertSignal::Grad | AlertSignal::Kind(_));
            if is_number && on.scope.is_some_and(|scope| scope != AlertScope::Global) {
                refuse("scope", format!("`{signal}` is one number of the run"), "write \"global\", or remove it");
            }
            if is_number
                && !only
                && matches!(signal, AlertSignal::GradNormRatio | AlertSignal::StepTime | AlertSignal::StragglerLag)
            {
                let hint = "use `NormMismatch`, `Stall` or `Straggler`";
                refuse("signal", format!("`{signal}` has its own rule"), hint);
            }
            if matches!(signal, AlertSignal::Kind(kind) if kind.is_feature()) {
                refuse("signal", format!("`{signal}` is a module's feature, not a tensor"), "write a kind of tensor");
            }
            if *signal == AlertSignal::Kind(Kind::Scalar) {
                let found = format!("`{signal}` comes from the script, and no rule checks it");
                refuse("signal", found, "write a kind of tensor, or `loss`");
            }
        }
    }
}
