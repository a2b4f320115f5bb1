//! What goes wrong in the first steps, what stands still, and what is dead; and where all alerts are written.

use trainmon_agent::StepFacts;
use trainmon_agent::core::config::Config;
use trainmon_agent::core::{Alert, AlertEnd, AlertPhase, AlertRule, AlertSignal, Kind};

use crate::run::{Run, config};

fn loss(value: f64) -> StepFacts {
    StepFacts { loss: Some(value), ..StepFacts::default() }
}

#[test]
fn a_loss_that_leaps_in_the_first_steps_is_told_and_named_as_what_moved_first() {
    let mut run = Run::new("{}");
    run.calm(20);
    run.step_with(loss(100.0), |_, kind| if kind == Kind::GradReduced { 40.0 } else { 1.0 });
    run.calm(3);
    run.finish();
    let spikes = run.keeper.begun(AlertRule::Spike);
    let of_loss = spikes.iter().find(|alert| alert.series.signal == AlertSignal::Loss).unwrap();
    assert_eq!(
        of_loss.message,
        "Spike: loss is 50 times its usual value at step 20 on rank 0 (100, usually 2, alert above 6); \
         moved first: loss at step 20 (100, usually 2); \
         with 1 other alert (Spike of gradient norm)"
    );
    assert_eq!(spikes.len(), 2, "the gradient norm too: {spikes:?}");
    assert!(spikes.iter().all(|alert| alert.moved_first.as_ref().unwrap().signal == AlertSignal::Loss));
}

#[test]
fn a_loss_that_collapses_is_told_once_and_a_loss_that_moves_is_not() {
    let mut run = Run::new("{}");
    run.calm(100);
    // The norm of the tensors' gradients stands still, as it does with a loss of 0 and a decay of the weights.
    let step = |run: &mut Run, value: f64| {
        let steady = |index: usize| 1.0 / (1.0 + 0.02 * ((run.step * 13 + index as u64 * 5) as f64).sin());
        let shifts: Vec<f64> = (0..run.tensors.len()).map(steady).collect();
        run.step_with(loss(value), move |index, _| shifts[index]);
    };
    for _ in 0..60 {
        step(&mut run, 0.0);
    }
    for moving in 0..40 {
        step(&mut run, 1.0 + f64::from(moving) * 1e-3);
    }
    run.finish();
    let found = run.keeper.begun(AlertRule::Collapse);
    let messages: Vec<&str> = found.iter().map(|alert| alert.message.as_str()).collect();
    assert_eq!(
        messages,
        ["Collapse: loss has been exactly 0 for 32 steps, with a constant gradient norm, up to step 131 on rank 0; \
             moved first: loss at step 100 (0, usually 2)"]
    );
}

#[test]
fn a_dead_part_of_a_living_layer_is_told_and_two_parts_are_one_alert() {
    let mut run = Run::new(r#"{"rules": [{"rule_name": "Dead"}]}"#);
    run.calm(5);
    for _ in 0..20 {
        run.step(|index, kind| if kind == Kind::GradReduced && matches!(index, 1 | 4 | 5) { 0.0 } else { 1.0 });
    }
    run.finish();
    let found = run.keeper.begun(AlertRule::Dead);
    let messages: Vec<&str> = found.iter().map(|alert| alert.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "Dead: gradient norm of `h.0.mlp.weight` has been exactly 0 for 10 steps, up to step 14 on rank 0; \
             with 1 other alert (Dead of gradient norm of `h.2.attn.weight`)",
            "Dead: gradient norm of `h.2.attn.weight` has been exactly 0 for 10 steps, up to step 14 on rank 0 \
             (and 1 other tensor of the layer)",
        ]
    );
}

#[test]
fn every_alert_is_in_the_runs_directory_with_the_findings_of_the_whole_run() {
    let place = tempfile::tempdir().unwrap();
    let text = r#"{"wg_distribution": true, "format": ["csv"], "layout": "run"}"#;
    let with_files = Config::parse(text, "c.json", &|_| None).unwrap().config;
    let config = Config { csv: with_files.csv, csv_layout: with_files.csv_layout, ..config("{}") };
    let mut run = Run::with_exporters(config, 0, None, Some(place.path()));
    let directory = run.monitor.rank_directory().unwrap().to_path_buf();
    let read = || std::fs::read_to_string(directory.join("alerts.jsonl")).unwrap();
    assert_eq!(read(), "", "an empty file says that there was no alert");
    run.calm(70);
    for _ in 0..3 {
        run.step_with(loss(f64::NAN), |_, _| 1.0);
    }
    run.calm(15);
    run.step_with(loss(f64::NAN), |_, _| 1.0);
    run.finish();
    let text = read();
    let (alerts, end) = text.trim_end().rsplit_once('\n').unwrap();
    let alerts: Vec<Alert> = alerts.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<(AlertPhase, u64)> = alerts.iter().map(|alert| (alert.phase, alert.step.0)).collect();
    assert_eq!(told, [(AlertPhase::Begins, 70), (AlertPhase::Ends, 82), (AlertPhase::Begins, 88)]);
    let end: AlertEnd = serde_json::from_str(end).unwrap();
    assert_eq!(end.findings.into_iter().collect::<Vec<_>>(), [(AlertRule::NonFinite, 4)]);
}
