//! `plot`, `report`, `replay` and `top` over logs of other tools.

use std::fs;

use serde_json::Value;

use super::{Workspace, data, table};

#[test]
fn report_says_what_was_read_and_has_the_alerts_of_the_default_rules() {
    let workspace = Workspace::with("a.csv", table("n,ce,size", ","));
    let said = workspace.run(&["report", "a.csv", "--loss", "ce", "--grad-norm", "size", "--step", "n"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    for text in [
        "# Run `a`",
        "Spike: loss is 2.9 times its usual value at step 150 on rank 0",
        "## What was read",
        "- loss: `ce`",
        "the alerts come from the default rules",
    ] {
        assert!(said.out.contains(text), "{text}: {}", said.out);
    }
    assert!(said.out.contains("`trainmon plot a.csv --loss ce --grad-norm size --step n --rank 0`"), "{}", said.out);
    assert!(!said.out.contains("compare-runs") && !said.out.contains("trainmon ctl"), "it is no run: {}", said.out);
    let said = workspace.run(&["report", "a.csv", "--loss", "ce", "--json"]);
    let report: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(
        report["curves"].as_array().map(|curves| curves.iter().any(|curve| curve["name"] == "loss")),
        Some(true)
    );
}

#[test]
fn plot_draws_the_curves_and_marks_the_alerts() {
    let workspace = Workspace::new();
    let state = data("trainer_state.json");
    let said = workspace.run(&["plot", &state.to_string_lossy(), "-o", "a.html", "--json"]);
    let plotted: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(
        (&plotted["steps"], &plotted["alerts"], &plotted["range"]),
        (&90.into(), &1.into(), &serde_json::json!([2, 180]))
    );
    assert_eq!(plotted["log"]["format"], "trainer_state");
    let page = fs::read_to_string(workspace.path("a.html")).expect("a page");
    assert!(page.contains("eval_loss") && page.contains("Spike: loss"), "curves and alerts");
}

#[test]
fn replay_sends_a_log_with_times_and_refuses_one_without() {
    let workspace = Workspace::with("a.csv", table("step,loss,grad_norm", ","));
    let wandb = data("tiny.wandb");
    let said = workspace.run(&["replay", &wandb.to_string_lossy(), "--to", "prometheus", "-o", "old"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let text = fs::read_to_string(workspace.path("old/openmetrics.txt")).expect("text");
    assert!(text.contains("trainmon_loss{run=\"tiny\",rank=\"0\"} 5"), "{}", &text[..2000]);
    assert!(text.contains("trainmon_grad_norm") && text.contains("trainmon_alerts_total"), "{}", &text[..2000]);
    let said = workspace.run(&["replay", "a.csv", "--to", "prometheus", "-o", "new"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("the run has no time for step 1"), "{}", said.err);
    let times = ["--start", "2026-11-20T16:00:00Z", "--step-seconds", "2"];
    let said = workspace.run(&[&["replay", "a.csv", "--to", "prometheus", "-o", "new"], &times[..]].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
}

#[test]
fn top_shows_a_log() {
    let workspace = Workspace::with("a.csv", table("step,loss,grad_norm", ","));
    let said = workspace.run(&["top", "a.csv", "--once"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("loss") && said.out.contains("200"), "{}", said.out);
}

#[test]
fn every_command_names_what_it_cannot_read() {
    let workspace = Workspace::with("notes.txt", "nothing of interest\n");
    for command in
        [&["plot", "notes.txt"][..], &["report", "notes.txt"], &["replay", "notes.txt", "--to", "prometheus"]]
    {
        let said = workspace.run(command);
        assert_eq!(said.code, Some(2), "{command:?}");
        assert!(
            said.err.contains("`notes.txt` is not a log that trainmon reads: it begins with `nothing of interest`"),
            "{}",
            said.err
        );
    }
    let help = workspace.run(&["completions", "bash"]);
    assert!(help.out.contains("alerts") && help.out.contains("--grad-norm"));
}
