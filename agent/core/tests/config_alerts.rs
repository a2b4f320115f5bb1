//! The keys of `alert`: msprobe's form, ours, and what is refused.

#![expect(clippy::expect_used, reason = "tests")]

use std::path::Path;

use trainmon_core::config::{AlertActions, Alerting, Config, RuleArgs};
use trainmon_core::{AlertRule, AlertScope, AlertSeverity, AlertSignal, Kind};

fn alerting(alert: &str) -> Alerting {
    let text = format!(r#"{{"wg_distribution": true, "alert": {alert}}}"#);
    let parsed = Config::parse(&text, "c.json", &|_| None).expect(&text);
    assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
    parsed.config.alert
}

fn refusals(alert: &str) -> Vec<String> {
    let text = format!(r#"{{"wg_distribution": true, "alert": {alert}}}"#);
    let errors = Config::parse(&text, "c.json", &|_| None).expect_err(&text).errors;
    errors.iter().map(|error| format!("{error} | {}", error.hint.as_deref().unwrap_or_default())).collect()
}

#[track_caller]
fn assert_refused(alert: &str, words: &[&str]) {
    let found = refusals(alert);
    assert_eq!(found.len(), 1, "{found:?}");
    for word in words {
        assert!(found[0].contains(word), "no {word:?} in {found:?}");
    }
}

const LOG: AlertActions =
    AlertActions { log: true, webhook: false, command: false, dump: false, replay: false, stop: false };

#[test]
fn a_config_without_a_word_about_alerts_looks_out_for_what_is_never_fine() {
    let rules = |alerting: Alerting| alerting.rules.iter().map(|rule| rule.rule).collect::<Vec<_>>();
    let always = [AlertRule::NormMismatch, AlertRule::ReplicaMismatch];
    let usual =
        [&[AlertRule::Spike, AlertRule::NonFinite, AlertRule::Collapse, AlertRule::Stall], &always[..]].concat();
    assert_eq!(rules(alerting("{}")), usual);
    assert_eq!(rules(Alerting::default()), usual);
    assert_eq!(rules(alerting(r#"{"rules": []}"#)), always);
    assert!(alerting("{}").rules.iter().all(|rule| rule.actions == LOG));
}

#[test]
fn the_incumbents_form_is_understood() {
    let alert = alerting(
        r#"{"rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.2}}, {"rule_name": "AnomalyNan"}],
            "dump": true}"#,
    );
    assert!(alert.dump);
    let [turbulence, nan, norm, replicas] = &alert.rules[..] else { panic!("{:?}", alert.rules) };
    assert_eq!((turbulence.rule, turbulence.args.threshold), (AlertRule::AnomalyTurbulence, Some(0.2)));
    assert_eq!((turbulence.scope, turbulence.signals.len()), (AlertScope::Tensor, 0));
    assert_eq!((nan.rule, nan.args.threshold), (AlertRule::AnomalyNan, None));
    assert_eq!((norm.rule, replicas.rule), (AlertRule::NormMismatch, AlertRule::ReplicaMismatch));
    let without_args = alerting(r#"{"rules": [{"rule_name": "AnomalyTurbulence"}]}"#);
    assert_eq!(without_args.rules[0].args.threshold, Some(0.5));
}

#[test]
fn a_rule_says_what_it_looks_at_and_what_is_done() {
    let alert = alerting(
        r#"{"rules": [{"rule_name": "Spike", "args": {"threshold": 4, "window": 256, "min_samples": 100, "floor": 2},
                       "on": {"scope": "layer", "signal": ["grad", "exp_avg"], "targets": ["h."]},
                       "severity": "info", "actions": ["webhook", "stop"]},
                      {"rule_name": "Dead"}],
            "webhook": {"url": "http://localhost:1/x"}, "command": {"run": ["true"]}}"#,
    );
    let rule = &alert.rules[0];
    let args = RuleArgs {
        threshold: Some(4.0),
        window: 256,
        min_samples: 100,
        floor: Some(2.0),
        ..RuleArgs::of_rule(AlertRule::Spike)
    };
    assert_eq!((rule.args, rule.scope, rule.severity), (args, AlertScope::Layer, AlertSeverity::Info));
    assert_eq!(rule.signals, [AlertSignal::Grad, AlertSignal::Kind(Kind::ExpAvg)]);
    assert_eq!(rule.targets, ["h."]);
    assert_eq!(rule.actions, AlertActions { log: false, webhook: true, stop: true, ..LOG });
    assert_eq!(alert.rules[1].actions, AlertActions { webhook: true, command: true, ..LOG });
    let webhook = alert.webhook.expect("described");
    assert_eq!((webhook.timeout_ms, webhook.retries), (5_000, 4));
}

#[test]
fn a_baseline_names_one_golden_run_or_several_and_looks_at_everything() {
    let alert = alerting(r#"{"rules": [{"rule_name": "Baseline", "golden": "runs/a", "actions": ["log", "stop"]}]}"#);
    let rule = &alert.rules[0];
    assert_eq!((rule.rule, rule.scope, rule.signals.len()), (AlertRule::Baseline, AlertScope::Tensor, 0));
    assert_eq!(rule.golden, [Path::new("runs/a")]);
    assert!(rule.actions.stop);
    let alert = alerting(r#"{"rules": [{"rule_name": "Baseline", "golden": ["runs/a", "b.tmj"]}]}"#);
    assert_eq!(alert.rules[0].golden, [Path::new("runs/a"), Path::new("b.tmj")]);
    for (rules, words) in [
        (r#"[{"rule_name": "Baseline"}]"#, ["alert.rules[0].golden", "a run's directory or journal"]),
        (r#"[{"rule_name": "Baseline", "golden": []}]"#, ["alert.rules[0].golden", "add \"golden\""]),
        (r#"[{"rule_name": "Spike", "golden": "a"}]"#, ["alert.rules[0].golden", "remove `golden`"]),
        (r#"[{"rule_name": "Baseline", "golden": 1}]"#, ["alert.rules[0].golden", "text in quotes"]),
        (
            r#"[{"rule_name": "Baseline", "golden": "a", "on": {"signal": "grad"}}]"#,
            ["alert.rules[0].on", "everything that both runs measured"],
        ),
        (
            r#"[{"rule_name": "Baseline", "golden": "a", "args": {"steps": 3}}]"#,
            ["alert.rules[0].args.steps", "`Baseline` has no parameters"],
        ),
        (
            r#"[{"rule_name": "Baseline", "golden": "a"}, {"rule_name": "Baseline", "golden": "b"}]"#,
            ["alert.rules[1].rule_name", "list all golden runs in one rule"],
        ),
    ] {
        assert_refused(&format!(r#"{{"rules": {rules}}}"#), &words);
    }
}

#[test]
fn the_rank_that_comes_last_has_a_rule_that_is_asked_for() {
    let alert = alerting(r#"{"rules": [{"rule_name": "Straggler", "args": {"threshold": 0.25}, "severity": "info"}]}"#);
    let rule = &alert.rules[0];
    assert_eq!((rule.rule, rule.args.threshold), (AlertRule::Straggler, Some(0.25)));
    assert_eq!((rule.signals.as_slice(), rule.severity), (&[AlertSignal::StragglerLag][..], AlertSeverity::Info));
    assert_eq!(alerting(r#"{"rules": [{"rule_name": "Straggler"}]}"#).rules[0].args.threshold, Some(0.1));
    for (wrong, words) in [
        (r#""args": {"steps": 2}"#, ["alert.rules[0].args.steps", "`Straggler` has threshold"]),
        (r#""on": {"signal": "loss"}"#, ["alert.rules[0].on.signal", "checks only `straggler_lag`"]),
    ] {
        assert_refused(&format!(r#"{{"rules": [{{"rule_name": "Straggler", {wrong}}}]}}"#), &words);
    }
    assert_refused(
        r#"{"rules": [{"rule_name": "Spike", "on": {"signal": "straggler_lag"}}]}"#,
        &["alert.rules[0].on.signal", "use `NormMismatch`, `Stall` or `Straggler`"],
    );
}

#[test]
fn a_rule_on_what_is_not_measured_is_told() {
    assert_refused(
        r#"{"rules": [{"rule_name": "Spike"}, {"rule_name": "UpdateRatio"}]}"#,
        &[
            "alert.rules[1].rule_name",
            "`UpdateRatio` checks `update_ratio`, which is not measured",
            r#""update": true"#,
        ],
    );
    assert_refused(
        r#"{"rules": [{"rule_name": "Collapse", "on": {"scope": "layer"}}]}"#,
        &["alert.rules[0].on.scope", "checks one number of the run"],
    );
}

#[test]
fn copies_are_compared_every_hundred_steps_and_all_of_them() {
    let interval = |text: &str| Config::parse(text, "c.json", &|_| None).expect(text).config.general.replica_interval;
    assert_eq!(interval(r#"{"wg_distribution": true}"#), 100);
    assert_eq!(interval(r#"{"wg_distribution": true, "replica_interval": 7}"#), 7);
    assert_eq!(interval(r#"{"monitors": {"weight_grad": {"enabled": true}}, "replica_interval": 0}"#), 0);
    assert_eq!(Config::default().general.replica_interval, 100);
    for on in [r#"{"scope": "layer"}"#, r#"{"signal": "exp_avg"}"#, r#"{"targets": ["h."]}"#] {
        let rule = format!(r#"{{"rules": [{{"rule_name": "ReplicaMismatch", "on": {on}}}]}}"#);
        assert_refused(&rule, &["alert.rules[0].on", "checks every copy"]);
    }
    let alert = alerting(r#"{"rules": [{"rule_name": "ReplicaMismatch", "actions": ["log", "dump"]}]}"#);
    assert!(alert.rules[0].actions.dump);
}

#[test]
fn a_wider_scope_than_the_rules_own_leaves_out_what_has_only_one() {
    let alert = alerting(r#"{"rules": [{"rule_name": "Spike", "on": {"scope": "layer"}}]}"#);
    assert_eq!(alert.rules[0].signals, [AlertSignal::Grad, AlertSignal::Kind(Kind::Update)]);
    let alert = alerting(r#"{"rules": [{"rule_name": "AnomalyNan", "on": {"scope": "group"}}]}"#);
    assert!(alert.rules[0].signals.contains(&AlertSignal::Grad));
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    let rule = |rule: &str| format!(r#"{{"rules": [{rule}]}}"#);
    assert_refused(&rule(r#"{"rule_name": "AnomalyInf"}"#), &["alert.rules[0].rule_name", "AnomalyNan"]);
    assert_refused(&rule(r#"{"args": {"threshold": 1}}"#), &["rule_name", "missing"]);
    assert_refused(&rule(r#"{"rule_name": "AnomalyNan", "args": {"threshold": -1}}"#), &["threshold"]);
    assert_refused(&rule(r#"{"rule_name": "AnomalyNan", "args": {"threshold": true}}"#), &["threshold", "a number"]);
    assert_refused(
        &rule(r#"{"rule_name": "Dead", "args": {"threshold": 1}}"#),
        &["alert.rules[0].args.threshold", "not a parameter of this rule", "`Dead` has steps"],
    );
    assert_refused(
        &rule(r#"{"rule_name": "Spike", "args": {"window": 32}}"#),
        &["min_samples", "64, but the window has 32 steps"],
    );
    assert_refused(
        &rule(r#"{"rule_name": "NonFinite", "on": {"targets": ["head"]}}"#),
        &["alert.rules[0].on.targets", "a rule for the whole run has no targets"],
    );
    assert_refused(
        &rule(r#"{"rule_name": "Spike", "on": {"signal": "loss", "scope": "layer"}}"#),
        &["alert.rules[0].on.scope", "one number of the run"],
    );
    assert_refused(&rule(r#"{"rule_name": "Spike", "on": {"signal": "gradient"}}"#), &["alert.rules[0].on.signal"]);
    assert_refused(&rule(r#"{"rule_name": "Stall", "on": {"signal": "loss"}}"#), &["checks only `step_time`"]);
    assert_refused(&rule(r#"{"rule_name": "Spike", "on": {"signal": "step_time"}}"#), &["has its own rule"]);
    assert_refused(&rule(r#"{"rule_name": "Spike", "actions": ["webhook"]}"#), &["is not configured"]);
    assert_refused(r#"{"webhook": {"url": "localhost:80"}}"#, &["alert.webhook.url", "an http or https address"]);
    assert_refused(r#"{"command": {"run": []}}"#, &["alert.command.run", "a program and its arguments"]);
}

#[test]
fn an_alert_that_asks_for_a_capture_switches_captures_on() {
    let config = |text: &str| Config::parse(text, "c.json", &|_| None).expect(text).config;
    let asks = r#"{"wg_distribution": true, "alert": {"rules": [{"rule_name": "NonFinite", "actions": ["dump"]}]}}"#;
    assert!(config(asks).alert.rules[0].actions.dump && config(asks).capture.is_some());
    assert_eq!(config(r#"{"wg_distribution": true}"#).capture, None);
    assert!(config(r#"{"wg_distribution": true, "control": {}}"#).capture.is_some());
    let off = r#"{"wg_distribution": true, "alert": {"actions": ["dump"]}, "capture": {"enabled": false}}"#;
    let errors = Config::parse(off, "c.json", &|_| None).expect_err(off).errors;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].key, "capture.enabled");
}
