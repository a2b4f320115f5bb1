//! What exporters get, and what of it is lost.

use trainmon_agent::core::{AlertRule, Kind};

use crate::run::{Got, Run};

#[test]
fn an_alert_comes_behind_its_step_and_before_the_next() {
    let mut run = Run::new("{}");
    run.calm(70);
    run.step(|_, kind| if kind == Kind::GradReduced { 9.0 } else { 1.0 });
    run.calm(2);
    run.finish();
    let got = run.keeper.got();
    let place = got.iter().position(|got| matches!(got, Got::Alert(_))).unwrap();
    assert!(matches!(got[place - 1], Got::Step(70)) && matches!(got[place + 1], Got::Step(71)), "{got:?}");
}

#[test]
fn a_step_with_hundreds_of_alerts_says_the_widest_and_counts_the_others() {
    let rules = r#"{"rules": [{"rule_name": "AnomalyNan"}, {"rule_name": "NonFinite"}]}"#;
    let mut run = Run::new(rules);
    run.step(|_, _| f64::NAN);
    run.finish();
    let totals = run.monitor.alert_totals();
    // Norm and mean of five kinds of six tensors; globally grad, exp_avg, exp_avg_sq, update and param_updated.
    assert_eq!((totals.findings_of(AlertRule::AnomalyNan), totals.findings_of(AlertRule::NonFinite)), (60, 5));
    let alerts = run.keeper.alerts();
    assert_eq!(alerts.len(), 5 + 32);
    assert!(alerts[..5].iter().all(|alert| alert.rule == AlertRule::NonFinite), "the widest first");
    assert_eq!(totals.lost, 60 - 32);
    assert_eq!(run.heard.containing("28 more AnomalyNan alerts in step 0"), 1, "{}", run.heard.all());
}

#[test]
fn a_noisy_rule_hides_no_other() {
    // In one step all 60 values of the first begin, and one tensor's norm and mean of the second.
    let rules = r#"{"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 0.5}},
        {"rule_name": "AnomalyTurbulence", "args": {"threshold": 5}, "actions": ["log"]}]}"#;
    let mut run = Run::new(rules);
    run.step(|_, _| 0.4);
    run.step(|tensor, kind| if tensor == 5 && kind == Kind::ParamUpdated { 9.0 } else { 1.0 });
    run.finish();
    assert_eq!(run.keeper.begun(AlertRule::AnomalyNan).len(), 32);
    assert_eq!(run.monitor.alert_totals().findings_of(AlertRule::AnomalyNan), 60);
    let others: Vec<String> =
        run.keeper.begun(AlertRule::AnomalyTurbulence).iter().map(|alert| alert.series.name.clone()).collect();
    assert_eq!(others, ["h.2.mlp.weight"; 2]);
}

#[test]
fn an_exporter_that_refuses_alerts_is_heard_once_and_its_losses_are_counted() {
    let mut run = Run::new("{}");
    *run.keeper.fails.lock().unwrap() = true;
    run.calm(70);
    run.step(|_, kind| if matches!(kind, Kind::GradReduced | Kind::Update) { 9.0 } else { 1.0 });
    run.finish();
    assert_eq!(run.monitor.alert_totals().lost, 2);
    assert_eq!(run.heard.containing("keeper: an alert is lost"), 1, "{}", run.heard.all());
}

#[test]
fn an_inert_monitor_has_no_alerts() {
    let monitor = trainmon_agent::Monitor::inert(trainmon_agent::Notices::stderr());
    assert!(!monitor.stop_requested());
    assert_eq!(monitor.alert_state()["series"].as_array().unwrap().len(), 0);
}
