//! Our own runs, msprobe's, and the rules of a config.

use super::run_files::{MadeRun, TENSORS};
use super::{PLANTED, Workspace, begun, golden, pairs, table};

fn made(steps: u64) -> MadeRun {
    MadeRun { steps, spike: None, not_finite: None }
}

#[test]
fn a_run_of_ours_is_judged_on_every_rank() {
    let workspace = Workspace::new();
    MadeRun { spike: Some(150), ..made(200) }.write_run(&workspace.path("out/run-a"), 2);
    let (report, code) = workspace.json(&["out"]);
    assert_eq!((begun(&report), code), (pairs(&[("Spike", 150)]), Some(1)));
    assert_eq!((&report["alerts"][0]["rank"], &report["log"]), (&1.into(), &serde_json::Value::Null));
    assert_eq!(report["ranks"][1], serde_json::json!({"rank": 1, "steps": 200, "range": [0, 199]}));
    let (report, code) = workspace.json(&["out", "--rank", "0"]);
    assert_eq!((begun(&report), code), (Vec::new(), Some(0)));
    let said = workspace.alerts(&["out", "--loss", "loss"]);
    assert!(said.err.contains("error: `out` is a monitored run: its columns are known"), "{}", said.err);
    assert!(said.err.contains("hint: omit `--step`, `--loss`, `--grad-norm` and `--lr`"), "{}", said.err);
    let said = workspace.alerts(&["out", "--rank", "7"]);
    assert!(said.err.contains("has no rank 7: found 0, 1"), "{}", said.err);
}

#[test]
fn what_the_rules_of_the_training_found_is_not_said_again() {
    let workspace = Workspace::new();
    made(200).write_run(&workspace.path("out/run-a"), 1);
    MadeRun::write_finding(&workspace.path("out/run-a"), 0, 50, "Spike", TENSORS[1]);
    let (report, code) = workspace.json(&["out"]);
    assert_eq!((begun(&report), code), (Vec::new(), Some(0)));
}

#[test]
fn a_steps_file_alone_is_a_table_like_any_other() {
    let workspace = Workspace::new();
    MadeRun { spike: Some(150), ..made(200) }.write_rank(&workspace.path("rank_0"));
    let (report, _) = workspace.json(&["rank_0/steps.csv"]);
    assert_eq!(begun(&report), pairs(&[("Spike", 150)]));
    let names = &report["log"]["columns"];
    assert_eq!((&names["loss"]["name"], &names["grad_norm"]["name"]), (&"loss".into(), &"grad_norm".into()));
}

#[test]
fn msprobes_files_are_judged_by_every_rule_that_finds_its_norms() {
    let Some(case) = golden::golden("01_monitor/v1_mlp_alert_nan", "msprobes_files_are_judged_by_every_rule") else {
        return;
    };
    let (report, code) = Workspace::new().json(&[&case.join("msprobe_out").to_string_lossy()]);
    assert_eq!(code, Some(1));
    let found = begun(&report);
    assert!(found.iter().all(|(rule, _)| rule == "NonFinite") && found[0].1 == 2, "{found:?}");
    let signals: Vec<_> =
        report["alerts"].as_array().expect("a list").iter().map(|alert| alert["series"]["signal"].clone()).collect();
    assert!(signals.contains(&"actv".into()) && signals.contains(&"grad".into()), "{signals:?}");
}

#[test]
fn the_rules_of_a_config_are_taken_and_no_action_of_theirs_is_carried_out() {
    let workspace = Workspace::with("a.csv", table("step,loss,grad_norm", ","));
    workspace.write(
        "loss.json",
        r#"{"alert": {"rules": [{"rule_name": "Spike", "on": {"signal": "loss"}, "actions": ["log", "command", "stop"]}],
            "dump": true, "command": {"run": ["touch", "touched"]}}}"#,
    );
    let (report, code) = workspace.json(&["a.csv", "--config", "loss.json"]);
    assert_eq!((begun(&report), code), (pairs(&PLANTED[..1]), Some(1)));
    assert!(!workspace.path("touched").exists() && !workspace.path("anomaly_detected").exists());
    workspace.write("high.json", r#"{"alert": {"rules": [{"rule_name": "Spike", "args": {"floor": 100}}]}}"#);
    assert_eq!(workspace.alerts(&["a.csv", "--config", "high.json"]).code, Some(0));
    workspace.write("tensors.json", r#"{"alert": {"rules": [{"rule_name": "Dead"}, {"rule_name": "Stall"}]}}"#);
    let said = workspace.alerts(&["a.csv", "--config", "tensors.json"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("no rule applies to `a.csv`: they judge tensors of the model"), "{}", said.err);
}

#[test]
fn a_config_at_fault_is_an_error() {
    let workspace = Workspace::with("a.csv", table("step,loss,grad_norm", ","));
    workspace.write("bad.json", r#"{"alert": {"rules": [{"rule_name": "Spikes"}]}}"#);
    let said = workspace.alerts(&["a.csv", "--config", "bad.json"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("error: invalid config: bad.json:1:") && said.err.contains("Spikes"), "{}", said.err);
    assert!(said.err.contains("hint: to see every error with its line, run `trainmon check-config`"), "{}", said.err);
    let said = workspace.alerts(&["a.csv", "--config", "none.json"]);
    assert!(said.err.contains("error: cannot read `none.json`"), "{}", said.err);
}
