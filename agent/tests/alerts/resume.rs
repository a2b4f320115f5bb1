//! A resumed run alerts as one that was never stopped.

use std::collections::BTreeSet;

use trainmon_agent::StepFacts;
use trainmon_agent::core::{Alert, AlertRule, Kind};

use crate::run::{Run, config};

/// Every rule that has a memory, on every scope.
const RULES: &str = r#"{"rules": [
    {"rule_name": "Spike"}, {"rule_name": "Spike", "args": {"threshold": 3, "min_samples": 32}},
    {"rule_name": "Spike", "on": {"scope": "layer"}, "args": {"min_samples": 16}},
    {"rule_name": "Spike", "on": {"scope": "group", "signal": "exp_avg"}, "args": {"min_samples": 16}},
    {"rule_name": "AnomalyTurbulence", "args": {"threshold": 1}}, {"rule_name": "AnomalyNan", "args": {"threshold": 5}},
    {"rule_name": "NonFinite"}, {"rule_name": "Dead", "args": {"steps": 3}},
    {"rule_name": "Drift", "args": {"min_samples": 40}}, {"rule_name": "Vanishing", "args": {"min_samples": 40}}]}"#;

const STEPS: u64 = 160;

fn shift(step: u64, tensor: usize, kind: Kind) -> f64 {
    match (step, kind) {
        (70, Kind::GradReduced) if tensor == 1 => f64::NAN,
        (40 | 71 | 90 | 130, Kind::GradReduced) => 7.0,
        (128..=131, Kind::ExpAvg) if tensor == 4 => 5.0,
        (100..=110, Kind::GradReduced) if tensor < 2 => 0.0,
        (140.., Kind::GradReduced) => 0.01,
        _ => 1.0,
    }
}

fn play(run: &mut Run, until: u64) {
    while run.step < until {
        let step = run.step;
        run.step(|tensor, kind| shift(step, tensor, kind));
    }
}

/// All alerts without their wall clock.
fn without_time(alerts: Vec<Alert>) -> Vec<String> {
    let timeless = |alert| Alert { time: std::time::SystemTime::UNIX_EPOCH, ..alert };
    alerts.into_iter().map(|alert| format!("{:?}", timeless(alert))).collect()
}

#[test]
fn a_run_that_goes_on_ill_is_asked_to_end_again() {
    let rules = r#"{"rules": [{"rule_name": "NonFinite", "actions": ["log", "stop"]}]}"#;
    let ill = |run: &mut Run, until: u64| {
        while run.step < until {
            run.step(|_, _| f64::NAN);
        }
    };
    let mut first = Run::new(rules);
    ill(&mut first, 3);
    let state = first.monitor.alert_state();
    assert!(first.monitor.stop_requested());
    first.finish();
    let mut second = Run::with(config(rules), 3);
    second.monitor.load_alert_state(state).unwrap();
    assert!(!second.monitor.stop_requested());
    ill(&mut second, 5);
    second.finish();
    assert!(second.monitor.stop_requested(), "the alert goes on: it has no beginning here");
}

#[test]
fn a_resumed_run_finds_what_one_that_was_never_stopped_finds() {
    let mut whole = Run::new(RULES);
    play(&mut whole, STEPS);
    whole.finish();
    let expected = without_time(whole.keeper.alerts());
    assert!(expected.len() > 40, "{}", expected.len());
    for stop in [1, 33, 64, 70, 71, 72, 91, 105, 129, 130, 131, 150] {
        let mut first = Run::new(RULES);
        play(&mut first, stop);
        // As a checkpoint keeps it: text.
        let state = first.monitor.alert_state().to_string();
        first.finish();
        let mut second = Run::with(config(RULES), stop);
        second.monitor.load_alert_state(serde_json::from_str(&state).unwrap()).unwrap();
        play(&mut second, STEPS);
        second.finish();
        let mut found = first.keeper.alerts();
        found.extend(second.keeper.alerts());
        assert_eq!(without_time(found), expected, "stopped at {stop}");
        let findings = |run: &Run| run.monitor.alert_totals().findings;
        let sum: Vec<u64> = findings(&first).iter().zip(findings(&second)).map(|(a, b)| a + b).collect();
        assert_eq!(sum, findings(&whole), "stopped at {stop}");
    }
}

#[test]
fn the_state_is_that_after_the_last_step_ended() {
    let mut run = Run::new("{}");
    for _ in 0..50 {
        run.calm(1);
        assert_eq!(run.monitor.alert_state()["step"], run.step - 1);
    }
}

#[test]
fn a_changed_config_keeps_what_still_fits() {
    let mut first = Run::new(r#"{"rules": [{"rule_name": "Spike"}, {"rule_name": "Drift"}]}"#);
    first.calm(100);
    let state = first.monitor.alert_state();
    let mut second = Run::new(r#"{"rules": [{"rule_name": "Spike", "args": {"threshold": 4, "window": 64}}]}"#);
    let loaded = second.monitor.load_alert_state(state).unwrap();
    // `Spike` looks at grad, update and loss, `Drift` at grad and loss.
    assert_eq!((loaded.taken_up, loaded.left_out.len()), (3, 2));
    assert_eq!(loaded.left_out[0].to_string(), "Drift on gradient norm");
    let said =
        "restored 3 of 5 series of the saved alert state; no rule or no space for Drift on gradient norm and 1 more";
    assert_eq!(second.heard.containing(said), 1, "{}", second.heard.all());
    second.step(|_, kind| if kind == Kind::GradReduced { 5.0 } else { 1.0 });
    second.finish();
    assert_eq!(second.monitor.alert_totals().grad_norm_spikes, 1);
}

#[test]
fn rules_that_differ_only_in_what_they_look_at_do_not_share_a_memory() {
    // Both follow the moments of every tensor; only one of them has been in alert.
    let rules = r#"{"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 1e9}, "on": {"scope": "tensor", "signal": "exp_avg"}},
                             {"rule_name": "AnomalyNan", "args": {"threshold": 0.5}}]}"#;
    let mut first = Run::new(rules);
    first.calm(5);
    let state = first.monitor.alert_state();
    first.finish();
    let began = first.keeper.begun(AlertRule::AnomalyNan).len();
    let mut second = Run::with(config(rules), 5);
    let loaded = second.monitor.load_alert_state(state).unwrap();
    // Norm and mean of six tensors: of one kind, and of five.
    assert_eq!((loaded.taken_up, loaded.left_out.len()), (12 + 60, 0));
    second.calm(30);
    second.finish();
    assert!(began > 0 && second.keeper.alerts().is_empty(), "{:?}", second.keeper.alerts());
}

#[test]
fn every_rule_is_in_the_state() {
    let rules = r#"{"rules": [{"rule_name": "Spike"}, {"rule_name": "NonFinite"}, {"rule_name": "Dead"},
        {"rule_name": "Vanishing"}, {"rule_name": "UpdateRatio"}, {"rule_name": "Drift"}, {"rule_name": "Stall"},
        {"rule_name": "NormMismatch"}, {"rule_name": "Collapse"}, {"rule_name": "AnomalyTurbulence"}, {"rule_name": "AnomalyNan"}]}"#;
    let mut run = Run::new(rules);
    for _ in 0..3 {
        let facts = StepFacts { loss: Some(f64::NAN), framework_grad_norm: Some(1e9), ..StepFacts::default() };
        run.step_with(facts, |_, _| 1.0);
    }
    let state = run.monitor.alert_state();
    let saved: BTreeSet<&str> =
        state["series"].as_array().unwrap().iter().map(|series| series["watch"]["rule"].as_str().unwrap()).collect();
    let names = AlertRule::ALL.map(AlertRule::name).into_iter();
    // The clock is no series; no tensor has a ratio in this run; what a golden run is held against is learnt anew; copies on
    // other ranks, and which rank comes last, are compared by the front.
    let others = ["Stall", "UpdateRatio", "Baseline", "ReplicaMismatch", "Straggler"];
    let expected: BTreeSet<&str> = names.filter(|rule| !others.contains(rule)).collect();
    assert_eq!(saved, expected);
    assert!(state["step_time"].as_f64().is_some_and(|seconds| seconds > 0.0), "{}", state["step_time"]);
    // An alert that goes on does so after the resume, instead of beginning anew.
    let resumed = Run::new(rules);
    let loaded = resumed.monitor.load_alert_state(state.clone()).unwrap();
    assert_eq!(loaded.left_out, []);
    let mut again = resumed.monitor.alert_state();
    let mut state = state;
    for state in [&mut state, &mut again] {
        state["series"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
    }
    assert_eq!(again, state);
}

#[test]
fn what_is_no_state_is_refused_and_changes_nothing() {
    let mut run = Run::new("{}");
    run.calm(70);
    let before = run.monitor.alert_state();
    let error = |state| run.monitor.load_alert_state(state).unwrap_err().to_string();
    assert_eq!(error(serde_json::json!({"a": 1})), "cannot read the alert state");
    let mut other = before.clone();
    other["version"] = 9.into();
    assert_eq!(error(other), "the alert state has version 9; this trainmon reads version 3");
    assert_eq!(
        error(serde_json::json!({"version": 9})),
        "the alert state has version 9; this trainmon reads version 3"
    );
    run.monitor.load_alert_state(serde_json::Value::Null).unwrap();
    let (mut now, mut then) = (run.monitor.alert_state(), before);
    for state in [&mut now, &mut then] {
        state["series"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
    }
    assert_eq!(now, then);
}
