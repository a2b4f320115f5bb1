//! The rule that looks at the clock.

use trainmon_agent::core::{AlertPhase, AlertRule};

use crate::run::Run;

#[test]
fn a_run_that_stands_still_is_told_and_so_is_that_it_goes_on() {
    let mut run = Run::new(r#"{"rules": [{"rule_name": "Stall", "args": {"seconds": 10, "threshold": 2}}]}"#);
    run.calm(3);
    let begun = run.keeper.wait_for_alert(|alert| alert.rule == AlertRule::Stall);
    assert_eq!((begun.phase, begun.step.0), (AlertPhase::Begins, 2));
    assert!(begun.value >= 10.0 && begun.value >= begun.expected.upper.unwrap(), "{begun:?}");
    assert!(run.heard.containing("Stall: no step for") == 1, "{}", run.heard.all());
    run.calm(1);
    let ended = run.keeper.wait_for_alert(|alert| alert.phase == AlertPhase::Ends);
    assert_eq!(ended.step.0, 3);
    assert!(ended.value >= begun.value, "{ended:?}");
    run.finish();
    assert!(run.monitor.alert_totals().findings_of(AlertRule::Stall) >= 1);
}

#[test]
fn of_two_stall_rules_each_speaks_at_its_own_time() {
    let rules = r#"{"rules": [
        {"rule_name": "Stall", "args": {"seconds": 0.2, "threshold": 0}},
        {"rule_name": "Stall", "args": {"seconds": 0.5, "threshold": 0}, "actions": ["stop"]}]}"#;
    let mut run = Run::new(rules);
    run.calm(1);
    let limits = [0.2, 0.5].map(|seconds| {
        let is_it = |alert: &trainmon_agent::core::Alert| alert.expected.upper == Some(seconds);
        run.keeper.wait_for_alert(is_it).phase
    });
    assert_eq!(limits, [AlertPhase::Begins; 2]);
    assert!(run.monitor.stop_requested());
    run.finish();
    assert_eq!(run.monitor.alert_totals().findings_of(AlertRule::Stall), 2);
}
