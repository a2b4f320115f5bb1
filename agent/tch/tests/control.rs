//! Live control of a real training loop: targets, modules and kinds follow at one step.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::socket::ask;
use common::{Row, batch, monitor, two_layers};
use tch::nn::{self, Module as _};
use trainmon_agent::core::Kind as Signal;
use trainmon_tch::{Optimizer, Watch};

/// Orders a change and waits until it is agreed upon for `step`.
fn order(socket: &Path, body: &str, step: u64) {
    let answer = ask(socket, "POST", "/set", body);
    assert!(answer.contains("\"id\":"), "{answer}");
    let deadline = Instant::now() + Duration::from_secs(90);
    let agreed = format!("\"stage\":\"agreed\",\"step\":{step},");
    loop {
        let status = ask(socket, "GET", "/status", "");
        if status.contains(&agreed) {
            return;
        }
        assert!(Instant::now() < deadline, "{status}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn names(rows: &[Row], step: u64) -> Vec<&str> {
    let mut names: Vec<&str> = rows.iter().filter(|row| row.step == step).map(|row| row.name.as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn parameters_modules_and_kinds_that_live_control_names_are_measured_from_one_step_on() {
    let directory = tempfile::tempdir().unwrap();
    let json = format!(
        r#"{{"wg_distribution": true, "ops": ["norm"], "targets": {{"first": {{}}}}, "control": {{"directory": {:?}}}}}"#,
        directory.path().to_str().unwrap()
    );
    let (monitor, collected) = monitor(&json);
    let socket = directory.path().join("control.sock");
    let (vs, net) = two_layers(3);
    let mut optimizer = Optimizer::new(&nn::adam(0.9, 0.99, 0.0), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    let net = watch.module("net", net);
    for step in 0..9 {
        match step {
            // It takes effect with the next step.
            2 => order(&socket, r#"{"targets":["second","net"],"kinds":{"activations":true,"param":true}}"#, 3),
            5 => order(&socket, r#"{"targets":[],"kinds":{"weight_grad":false,"activations":false}}"#, 6),
            _ => {}
        }
        optimizer.zero_grad().unwrap();
        let (inputs, targets) = batch(step);
        net.forward(&inputs).mse_loss(&targets, tch::Reduction::Mean).backward();
        watch.step(&mut optimizer).unwrap();
    }
    let report = watch.finish();
    assert!(report.balances() && report.lost() == 0, "{report}");
    let (reduced, unreduced) = (collected.of_kind(Signal::GradReduced), collected.of_kind(Signal::GradUnreduced));
    let (params, values) = (collected.of_kind(Signal::ParamOrigin), collected.of_kind(Signal::Actv));
    let (first, second) = (["first.bias", "first.weight"], ["second.bias", "second.weight"]);
    for step in 0..9 {
        let (gradients, parameters): (&[&str], &[&str]) = match step {
            0..=2 => (&first, &[]),
            3..=5 => (&second, &second),
            _ => (&[], &["first.bias", "first.weight", "second.bias", "second.weight"]),
        };
        assert_eq!(names(&reduced, step), gradients, "step {step}");
        assert_eq!(names(&unreduced, step), gradients, "step {step}");
        assert_eq!(names(&params, step), parameters, "step {step}");
        let ends: &[&str] = if (3..=5).contains(&step) { &["net.input", "net.output"] } else { &[] };
        assert_eq!(names(&values, step), ends, "step {step}");
    }
}

#[test]
fn under_a_budget_layers_take_turns_with_all_of_their_signals() {
    let json = r#"{"wg_distribution": true, "mv_distribution": true, "update": true, "mg_direction": true,
        "ops": ["norm"], "overhead_budget": 0.000001}"#;
    let (monitor, collected) = monitor(json);
    let (vs, net) = two_layers(3);
    let mut optimizer = Optimizer::new(&nn::adam(0.9, 0.99, 0.0), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    for step in 0..40 {
        optimizer.zero_grad().unwrap();
        common::loss(&net, step).backward();
        watch.step(&mut optimizer).unwrap();
    }
    let report = watch.finish();
    assert!(report.balances() && report.lost() == 0, "{report}");
    assert!(report.counts.not_sampled > 0);
    let strides: Vec<u32> = collected.batches().iter().map(|batch| batch.sampling_stride).collect();
    assert_eq!((strides[0], strides[39]), (1, 256), "a millionth of the step is not enough");
    for batch in collected.batches() {
        // Without moments in step 0 and whole layers from then on: every kind or none.
        let of = |kind| batch.records.iter().filter(|record| record.kind == kind).count();
        let gradients = of(Signal::GradReduced);
        assert!([0, 2, 4].contains(&gradients), "{}: {gradients}", batch.step);
        for kind in [Signal::GradUnreduced, Signal::Update, Signal::UpdateRatio, Signal::MgDirection] {
            assert_eq!(of(kind), gradients, "{kind} in step {}", batch.step);
        }
        assert_eq!(batch.grad_norm().is_some(), batch.sampling_stride == 1);
    }
}
