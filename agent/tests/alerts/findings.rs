//! What is found, said and counted.

use std::time::Duration;

use trainmon_agent::StepFacts;
use trainmon_agent::core::config::Config;
use trainmon_agent::core::{
    AlertPhase, AlertRule, AlertScope, AlertSignal, Kind, MicroStep, Reading, Record, Statistic, TensorStats,
};

use crate::run::{LAYERS, Run, config};

#[test]
fn a_spike_names_what_moved_first() {
    let mut run = Run::new("{}");
    run.calm(100);
    run.step(|tensor, kind| if tensor == 2 && kind == Kind::ExpAvg { 6.0 } else { 1.0 });
    run.step(|tensor, kind| if kind == Kind::Update || (tensor == 2 && kind == Kind::ExpAvg) { 6.0 } else { 1.0 });
    run.step(|_, kind| if kind == Kind::GradReduced { 9.0 } else { 1.0 });
    run.calm(20);
    run.finish();
    let [update, grad] = &run.keeper.begun(AlertRule::Spike)[..] else { panic!("{:?}", run.keeper.alerts()) };
    assert_eq!((update.step.0, update.series.signal), (101, AlertSignal::Kind(Kind::Update)));
    assert_eq!((grad.step.0, grad.series.signal), (102, AlertSignal::Grad));
    assert_eq!((grad.series.scope, grad.series.statistic), (AlertScope::Global, Some(Statistic::Norm)));
    assert!(grad.value > 20.0 && grad.expected.upper.unwrap() < 6.0, "{grad:?}");
    for alert in [update, grad] {
        let first = alert.moved_first.as_ref().unwrap();
        assert_eq!((first.step.0, first.signal), (100, AlertSignal::Kind(Kind::ExpAvg)));
        assert_eq!((first.layer.as_str(), first.tensor.as_deref()), ("h.1", Some("h.1.attn.weight")));
    }
    let said =
        "Spike: gradient norm is 9 times its usual value at step 102 on rank 0 (22.1, usually 2.45, alert above 5.33)";
    assert!(grad.message.starts_with(said), "{}", grad.message);
    // Both are one incident: one message when it begins, one when all of it is over.
    assert_eq!(run.heard.containing("moved first: exp_avg of `h.1.attn.weight` at step 100"), 1, "{}", run.heard.all());
    let over = "Spike: update norm has been back to normal since step 102 on rank 0, after 1 finding; the other alert of this \
                incident has also ended, the last at step 103";
    assert_eq!(run.heard.containing(over), 1, "{}", run.heard.all());
    assert_eq!(run.heard.containing("Spike"), 2, "{}", run.heard.all());
    let totals = run.monitor.alert_totals();
    assert_eq!((totals.grad_norm_spikes, totals.update_norm_spikes, totals.findings_of(AlertRule::Spike)), (1, 1, 2));
    let (step, zscore) = totals.grad_norm_zscore.unwrap();
    assert!(step.0 == 122 && zscore.is_finite(), "{totals:?}");
}

#[test]
fn a_layer_that_jumps_in_the_reduction_is_found_and_the_reduction_named() {
    let rule = r#"{"rules": [{"rule_name": "Spike", "on": {"scope": "layer", "signal": "grad"}}]}"#;
    // On the first rank only what came out of the reduction jumps, on the second what went in.
    for jumps_before in [false, true] {
        let mut run = Run::new(rule);
        for step in 0..110 {
            let jump = if step == 100 { 50.0 } else { 1.0 };
            for (index, &tensor) in run.tensors.iter().enumerate() {
                let factor = if jumps_before && index == 2 { jump } else { 1.0 };
                let reading = Some(TensorStats::of_value(factor * (1.0 + 0.02 * f64::from(step % 7))).into());
                let record = Record { tensor, kind: Kind::GradUnreduced, micro_step: MicroStep(0), reading };
                run.monitor.record(record, Duration::ZERO, 0);
            }
            run.step(|index, kind| match kind {
                Kind::GradReduced | Kind::Update if index == 2 => jump,
                _ => 1.0,
            });
        }
        run.finish();
        let after = AlertSignal::Kind(Kind::GradReduced);
        let (sides, named) =
            if jumps_before { (vec![AlertSignal::Grad, after], AlertSignal::Grad) } else { (vec![after], after) };
        let found = run.keeper.begun(AlertRule::Spike);
        assert_eq!(found.iter().map(|alert| alert.series.signal).collect::<Vec<_>>(), sides, "{found:?}");
        for alert in &found {
            let first = alert.moved_first.as_ref().unwrap();
            assert_eq!((alert.series.name.as_str(), alert.step.0), ("h.1", 100));
            assert_eq!((first.signal, first.step.0), (named, 100), "{first:?}");
            assert_eq!(first.tensor.as_deref(), Some("h.1.attn.weight"));
        }
    }
}

#[test]
fn steps_that_are_not_measured_do_not_hide_what_moved_first() {
    let mut config = config("{}");
    config.window.step_interval = 3;
    let mut run = Run::with(config, 0);
    for step in 0..330 {
        run.step(|tensor, kind| match kind {
            // Long before the gradient, in measured steps.
            Kind::ExpAvg if tensor == 2 && step >= 300 => 6.0,
            Kind::GradReduced if step >= 312 => 9.0,
            _ => 1.0,
        });
    }
    run.finish();
    let spikes = run.keeper.begun(AlertRule::Spike);
    let first = spikes[0].moved_first.as_ref().unwrap();
    assert_eq!((spikes[0].step.0, first.step.0), (312, 300), "{first:?}");
    assert_eq!((first.signal, first.layer.as_str()), (AlertSignal::Kind(Kind::ExpAvg), "h.1"));
}

#[test]
fn under_a_budget_what_is_not_finite_is_found_and_who_rests_is_said() {
    let config = Config { overhead_budget: Some(0.01), ..config("{}") };
    let mut run = Run::with(config, 0);
    // No step takes that long: soon only a part is measured.
    run.cost = Duration::from_secs(1_000);
    while run.monitor.sampling_stride() < 4 {
        run.calm(1);
        assert!(run.step < 1_000, "{}", run.heard.all());
    }
    let begin = run.step;
    // A turn of every tensor.
    for _ in 0..run.monitor.sampling_stride() {
        run.step(|tensor, kind| if tensor == 3 && kind == Kind::ExpAvg { f64::NAN } else { 1.0 });
    }
    run.finish();
    let found = run.keeper.begun(AlertRule::NonFinite);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].series.scope, found[0].series.signal), (AlertScope::Global, AlertSignal::Kind(Kind::ExpAvg)));
    assert!(found[0].step.0 >= begin && found[0].value.is_nan());
    let said = "rules on norms over layers are paused: Spike on grad, Spike on update, Collapse on loss\n";
    assert_eq!(run.heard.containing(said), 1, "{}", run.heard.all());
    assert_eq!(run.heard.containing("rules on norms over layers are paused"), 1);
}

#[test]
fn a_nan_is_found_and_the_next_spike_too() {
    let mut run = Run::new("{}");
    run.calm(80);
    run.step(|tensor, kind| if tensor == 3 && kind == Kind::GradReduced { f64::NAN } else { 1.0 });
    run.calm(3);
    run.step(|tensor, kind| if tensor == 3 && kind == Kind::GradReduced { f64::INFINITY } else { 1.0 });
    run.calm(3);
    run.step(|_, kind| if kind == Kind::GradReduced { 4.0 } else { 1.0 });
    run.calm(15);
    run.finish();
    let non_finite = run.keeper.begun(AlertRule::NonFinite);
    assert_eq!(non_finite.len(), 1, "one alert that goes on: {non_finite:?}");
    assert_eq!(non_finite[0].step.0, 80);
    assert_eq!(non_finite[0].moved_first.as_ref().unwrap().tensor.as_deref(), Some("h.1.mlp.weight"));
    let spikes = run.keeper.begun(AlertRule::Spike);
    assert_eq!(spikes.iter().map(|alert| alert.step.0).collect::<Vec<_>>(), [88]);
    assert_eq!(run.monitor.alert_totals().findings_of(AlertRule::NonFinite), 2);
    let end = run.keeper.wait_for_alert(|alert| alert.rule == AlertRule::NonFinite && alert.phase == AlertPhase::Ends);
    // In the steps 80 and 84; well since the one behind, which shows after ten quiet ones.
    assert_eq!((end.findings, end.step.0), (2, 94));
    assert_eq!(
        run.heard.containing("back to normal since step 85 on rank 0, after 2 findings"),
        1,
        "{}",
        run.heard.all()
    );
}

#[test]
fn no_rule_hides_another() {
    let alert = r#"{"rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}},
                              {"rule_name": "AnomalyNan", "args": {"threshold": 10}},
                              {"rule_name": "AnomalyNan"}]}"#;
    let mut run = Run::new(alert);
    run.calm(10);
    run.step(|tensor, kind| if tensor == 0 && kind == Kind::ExpAvg { 50.0 } else { 1.0 });
    run.step(|tensor, kind| if tensor == 0 && kind == Kind::ExpAvg { f64::INFINITY } else { 1.0 });
    run.finish();
    // Norm and mean of one tensor: turbulent in both steps, large in both, infinite in the second.
    assert_eq!(run.monitor.alert_totals().findings_of(AlertRule::AnomalyTurbulence), 4);
    assert_eq!(run.monitor.alert_totals().findings_of(AlertRule::AnomalyNan), 4 + 2);
    let alerts = run.keeper.begun(AlertRule::AnomalyNan);
    assert_eq!(alerts.len(), 4);
    assert!(alerts.iter().all(|alert| alert.series.name == "h.0.attn.weight"), "{alerts:?}");
}

#[test]
fn series_are_of_layers_groups_and_chosen_tensors() {
    let rule = |on: &str| format!(r#"{{"rule_name": "Spike", "args": {{"min_samples": 16}}, "on": {{{on}}}}}"#);
    let rules = [
        rule(r#""scope": "layer", "signal": "exp_avg_sq""#),
        rule(r#""scope": "group", "signal": "exp_avg_sq", "targets": ["mlp"]"#),
        rule(r#""scope": "tensor", "signal": "exp_avg_sq", "targets": ["h.0", "h.2.mlp"]"#),
        rule(r#""scope": "tensor", "signal": "grad""#),
    ];
    let mut run = Run::new(&format!(r#"{{"rules": [{}]}}"#, rules.join(",")));
    run.calm(30);
    run.step(|tensor, kind| match kind {
        Kind::ExpAvgSq => 5.0,
        Kind::GradReduced if tensor == 4 => 5.0,
        _ => 1.0,
    });
    run.finish();
    let mut found: Vec<(AlertScope, String)> =
        run.keeper.begun(AlertRule::Spike).into_iter().map(|alert| (alert.series.scope, alert.series.name)).collect();
    found.sort();
    let expected = [
        (AlertScope::Group, "mlp"),
        (AlertScope::Layer, "h.0"),
        (AlertScope::Layer, "h.1"),
        (AlertScope::Layer, "h.2"),
        (AlertScope::Tensor, "h.0.attn.weight"),
        (AlertScope::Tensor, "h.0.mlp.weight"),
        (AlertScope::Tensor, "h.2.attn.weight"),
        (AlertScope::Tensor, "h.2.mlp.weight"),
    ];
    assert_eq!(found, expected.map(|(scope, name)| (scope, name.to_owned())));
}

#[test]
fn dead_and_vanishing_gradients_and_too_large_updates_are_found() {
    let alert = r#"{"rules": [{"rule_name": "Dead", "args": {"steps": 5}},
                              {"rule_name": "Vanishing", "args": {"min_samples": 50}},
                              {"rule_name": "UpdateRatio", "args": {"steps": 3}}]}"#;
    let mut run = Run::new(alert);
    let record_ratio = |run: &Run, ratio: f64| {
        for &tensor in &run.tensors {
            let record = Record {
                tensor,
                kind: Kind::UpdateRatio,
                micro_step: MicroStep(0),
                reading: Some(Reading::of_values(&[ratio])),
            };
            run.monitor.record(record, Duration::ZERO, 0);
        }
    };
    for step in 0..200 {
        record_ratio(&run, if step >= 100 { 0.02 } else { 0.001 });
        run.step(|tensor, kind| match kind {
            Kind::GradReduced if step >= 60 && tensor < 2 => 0.0,
            Kind::GradReduced if step >= 80 => 0.001,
            _ => 1.0,
        });
    }
    run.finish();
    let dead = run.keeper.begun(AlertRule::Dead);
    assert_eq!(
        dead.iter().map(|alert| (alert.series.name.as_str(), alert.step.0)).collect::<Vec<_>>(),
        [("h.0.attn.weight", 64)]
    );
    let vanishing = run.keeper.begun(AlertRule::Vanishing);
    assert!(vanishing.len() == 1 && (80..200).contains(&vanishing[0].step.0), "{vanishing:?}");
    let ratios = run.keeper.begun(AlertRule::UpdateRatio);
    assert_eq!(ratios.iter().map(|alert| alert.step.0).collect::<Vec<_>>(), [102; LAYERS]);
}

#[test]
fn a_loss_that_jumps_is_a_spike_of_its_own() {
    let mut run = Run::new("{}");
    for step in 0..100 {
        let loss = if step == 90 { 3.0 } else { 2.0 + 0.01 * (f64::from(step)).sin() };
        run.step_with(StepFacts { loss: Some(loss), ..StepFacts::default() }, |_, _| 1.0);
    }
    run.finish();
    let spikes = run.keeper.begun(AlertRule::Spike);
    assert_eq!(
        spikes.iter().map(|alert| (alert.series.signal, alert.step.0)).collect::<Vec<_>>(),
        [(AlertSignal::Loss, 90)]
    );
}

#[test]
fn norms_that_part_are_an_alert_with_both_of_them() {
    let mut run = Run::new(r#"{"rules": []}"#);
    let norm = |framework: f64| StepFacts { framework_grad_norm: Some(framework), ..StepFacts::default() };
    let ours = (2.0 * LAYERS as f64).sqrt();
    for framework in [ours, 2.0 * ours, 3.0 * ours, ours] {
        run.step_with(norm(framework), |_, _| 1.0);
    }
    run.finish();
    let alerts = run.keeper.alerts();
    assert_eq!(
        alerts.iter().map(|alert| (alert.phase, alert.step.0)).collect::<Vec<_>>(),
        [(AlertPhase::Begins, 1), (AlertPhase::Ends, 3)]
    );
    assert_eq!(
        run.heard.containing("differs from the framework's by more than 1 % at step 1 on rank 0 (trainmon 2.4"),
        1
    );
    assert_eq!(
        run.heard.containing("have agreed again since step 3 on rank 0 (trainmon 2.4"),
        1,
        "{}",
        run.heard.all()
    );
}

#[test]
fn values_of_more_series_than_allowed_are_counted() {
    let mut run = Run::new(r#"{"rules": [{"rule_name": "AnomalyNan"}], "max_series": 10}"#);
    run.calm(2);
    run.finish();
    let values = 2 * LAYERS as u64 * 5 * 2;
    // `NormMismatch` has no value here; ten series are followed.
    assert_eq!(run.monitor.alert_totals().series_overflow, 2 * (values - 10));
}
