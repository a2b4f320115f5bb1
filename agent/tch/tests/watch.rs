//! What a watch records, and what it survives.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{Collected, Row, loss, monitor, two_layers};
use tch::nn::{self, Module, OptimizerConfig as _, VarStore};
use tch::{Device, Kind, Tensor};
use trainmon_agent::core::{Kind as Signal, TensorStats};
use trainmon_tch::{DeviceStatistics, InFlight, LibtorchStatistics, MomentSource, Optimizer, Watch};

const EVERYTHING: &str = r#"{"targets": {}, "ops": ["min", "max", "mean", "norm", "std", "nans", "zeros"],
    "wg_distribution": true, "mv_distribution": true, "param_distribution": true, "xy_distribution": true,
    "all_xy": true, "mg_direction": true, "update": true}"#;

fn norm_of(tensor: &Tensor) -> f64 {
    tensor.detach().to_kind(Kind::Double).norm().double_value(&[])
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-6 * expected.abs().max(1e-12), "{found} instead of {expected}");
}

fn reading(rows: &[Row], step: u64, name: &str) -> TensorStats {
    let mut found = rows.iter().filter(|row| row.step == step && row.name == name);
    let row = found.next().unwrap_or_else(|| panic!("no row of {name} in step {step}: {rows:?}"));
    assert!(found.next().is_none(), "one row of {name} in step {step}");
    row.reading.unwrap()
}

const NAMES: [&str; 4] = ["first.weight", "first.bias", "second.weight", "second.bias"];

/// Parameters in creation order; tch makes a linear layer's bias or weight first as it likes.
fn parameter(vs: &VarStore, name: &str) -> Tensor {
    vs.variables().remove(name).unwrap()
}

#[test]
fn every_signal_of_a_step_is_what_torch_itself_computes() {
    let (monitor, collected) = monitor(EVERYTHING);
    let (vs, net) = two_layers(3);
    let mut optimizer = Optimizer::new(&nn::adam(0.9, 0.99, 0.0), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    let mut expected = Vec::new();
    for step in 0..3 {
        optimizer.zero_grad().unwrap();
        loss(&net, step).backward();
        let unclipped: Vec<f64> = NAMES.map(|name| norm_of(&parameter(&vs, name).grad())).into();
        optimizer.clip_grad_norm(1e-2).unwrap();
        let before: Vec<Tensor> = NAMES.map(|name| parameter(&vs, name).detach().copy()).into();
        let first_moment = optimizer.moment(&parameter(&vs, NAMES[0]), Signal::ExpAvg).unwrap().map(|m| norm_of(&m));
        watch.loss(step as f64);
        watch.step(&mut optimizer).unwrap();
        expected.push((unclipped, before, first_moment));
    }
    let after: Vec<Tensor> = NAMES.map(|name| parameter(&vs, name).detach().copy()).into();
    let report = watch.finish();
    assert!(report.balances(), "{report}");
    for (step, (unclipped, before, first_moment)) in expected.iter().enumerate() {
        let (here, next) = (step as u64, expected.get(step + 1).map_or(&after, |(_, before, _)| before));
        for (index, name) in NAMES.iter().enumerate() {
            let of = |kind| reading(&collected.of_kind(kind), here, name);
            assert_near(of(Signal::GradUnreduced).norm, unclipped[index]);
            assert!(of(Signal::GradReduced).norm < of(Signal::GradUnreduced).norm, "clipped");
            assert_near(of(Signal::ParamOrigin).norm, norm_of(&before[index]));
            assert_near(of(Signal::ParamUpdated).norm, norm_of(&next[index]));
            let update = norm_of(&(&next[index] - &before[index]));
            assert_near(of(Signal::Update).norm, update);
            assert_near(of(Signal::UpdateRatio).id().unwrap().as_f64(), update / norm_of(&before[index]));
        }
        let moments = collected.of_kind(Signal::ExpAvg);
        match first_moment {
            Some(norm) => assert_near(reading(&moments, here, NAMES[0]).norm, *norm),
            None => assert!(moments.iter().all(|row| row.step != here), "no moments before the first step"),
        }
    }
    let directions = collected.of_kind(Signal::MgDirection);
    assert!(NAMES.iter().all(|name| reading(&directions, 0, name).mean == 1.0));
    assert!(NAMES.iter().any(|name| reading(&directions, 1, name).mean != 1.0));
    let facts: Vec<_> = collected.batches().iter().map(|batch| (batch.loss, batch.learning_rate)).collect();
    assert_eq!(facts, [(Some(0.0), Some(1e-2)), (Some(1.0), Some(1e-2)), (Some(2.0), Some(1e-2))]);
}

#[test]
fn moments_are_read_after_the_step_in_the_second_dialect() {
    let (monitor, collected) = monitor(r#"{"monitors": {"optimizer": {"enabled": true, "ops": ["norm"]}}}"#);
    let (vs, net) = two_layers(3);
    let mut optimizer = Optimizer::new(&nn::adam(0.9, 0.99, 0.0), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    optimizer.zero_grad().unwrap();
    loss(&net, 0).backward();
    let gradient = norm_of(&parameter(&vs, NAMES[0]).grad());
    watch.step(&mut optimizer).unwrap();
    watch.finish();
    let found = reading(&collected.of_kind(Signal::ExpAvg), 0, NAMES[0]).norm;
    assert!((found / (0.1 * gradient) - 1.0).abs() < 1e-5, "{found} for a gradient of {gradient}");
}

fn train_two_micro_batches(json: &str) -> Collected {
    let (monitor, collected) = monitor(json);
    let (vs, net) = two_layers(3);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).grad_acc_steps(2).build().unwrap();
    let net = watch.module("net", net);
    for step in 0..2 {
        optimizer.zero_grad().unwrap();
        for micro in 0..2 {
            loss(&net, 2 * step + micro).backward();
        }
        watch.step(&mut optimizer).unwrap();
    }
    // Validation is not training.
    let _validation = tch::no_grad(|| loss(&net, 9));
    watch.finish();
    collected
}

fn micro_steps(rows: &[Row], name: &str) -> Vec<(u64, u32)> {
    rows.iter().filter(|row| row.name == name).map(|row| (row.step, row.micro_step)).collect()
}

#[test]
fn the_last_micro_batch_is_recorded_or_every_one_if_asked_for() {
    let last = train_two_micro_batches(r#"{"ops": ["norm"], "wg_distribution": true}"#);
    assert_eq!(micro_steps(&last.of_kind(Signal::GradUnreduced), NAMES[0]), [(0, 1), (1, 1)]);
    let every = train_two_micro_batches(r#"{"ops": ["norm"], "wg_distribution": true, "monitor_mbs_grad": true}"#);
    let gradients = every.of_kind(Signal::GradUnreduced);
    assert_eq!(micro_steps(&gradients, NAMES[0]), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    let norms: Vec<f64> =
        gradients.iter().filter(|row| row.name == NAMES[0]).map(|row| row.reading.unwrap().norm).collect();
    assert!(norms[0] != norms[1], "the running sum grows");
    // The reduced gradient is the whole step's: it carries the last micro-batch's number, from which V2 counts.
    assert_eq!(micro_steps(&every.of_kind(Signal::GradReduced), NAMES[0]), [(0, 1), (1, 1)]);
    // Nobody wrote to the gradient after its hook: the second reading is the first.
    assert_eq!(reading(&every.of_kind(Signal::GradReduced), 0, NAMES[0]).norm, norms[1]);
}

#[test]
fn a_modules_input_output_and_their_gradients_are_recorded_per_micro_batch() {
    let rows = train_two_micro_batches(r#"{"ops": ["norm", "mean"], "xy_distribution": true, "all_xy": true}"#);
    for (kind, name) in [(Signal::Actv, "net.input"), (Signal::Actv, "net.output"), (Signal::ActvGrad, "net.output")] {
        assert_eq!(micro_steps(&rows.of_kind(kind), name), [(0, 0), (0, 1), (1, 0), (1, 1)], "{kind} {name}");
    }
    assert_eq!(micro_steps(&rows.of_kind(Signal::ActvGrad), "net.input"), [], "the data needs no gradient");
    assert!(rows.rows().iter().all(|row| matches!(row.kind, Signal::Actv | Signal::ActvGrad)));
}

#[test]
fn the_gradient_of_an_input_is_its_whole_gradient_and_a_leaf_is_hooked_once() {
    let (monitor, collected) =
        monitor(r#"{"ops": ["norm"], "xy_distribution": true, "targets": {"double": {}, "squares": {}}}"#);
    let (vs, _net) = two_layers(3);
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    let double = watch.module("double", nn::func(|xs| xs * 2.0));
    let observer = watch.observer();
    let unasked = watch.module("unasked", nn::func(|xs| xs * 2.0));
    let input = Tensor::ones([4], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    for _step in 0..3 {
        let output = double.forward(&input) + &input + unasked.forward(&input);
        observer.observe("squares", &output.square());
        output.square().sum(Kind::Float).backward();
        watch.step_with(&mut nn::AdamW::default().build(&vs, 0.1).unwrap(), |_| ());
    }
    watch.finish();
    let gradients = collected.of_kind(Signal::ActvGrad);
    assert_eq!(micro_steps(&gradients, "double.input"), [(0, 0), (1, 0), (2, 0)]);
    // d/dx of (5x)^2 at 1 is 50 per element, of which the wrapped module itself passed on 20.
    assert_eq!(reading(&gradients, 0, "double.input").norm, 100.0);
    assert_eq!(reading(&gradients, 0, "double.output").norm, 20.0);
    assert_eq!(reading(&collected.of_kind(Signal::Actv), 2, "squares").norm, 50.0);
    assert!(collected.rows().iter().all(|row| !row.name.starts_with("unasked")));
}

#[test]
fn two_models_are_two_stages_and_targets_choose_parameters_of_either() {
    let (monitor, collected) =
        monitor(r#"{"ops": ["norm"], "param_distribution": true, "targets": {"first.weight": {}, "1:second": {}}}"#);
    let ((one, net), (two, other)) = (two_layers(1), two_layers(2));
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &one, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&one).model(&two).build().unwrap();
    (loss(&net, 0) + loss(&other, 0)).backward();
    watch.step(&mut optimizer).unwrap();
    watch.finish();
    let found: Vec<(u32, String)> =
        collected.of_kind(Signal::ParamOrigin).into_iter().map(|row| (row.vpp_stage, row.name)).collect();
    let mut sorted = found.clone();
    sorted.sort();
    let expected = [(0, "first.weight"), (1, "first.weight"), (1, "second.bias"), (1, "second.weight")];
    assert_eq!(sorted, expected.map(|(stage, name)| (stage, name.to_owned())));
    assert!(found.iter().map(|(stage, _)| stage).is_sorted());
}

#[test]
fn parameters_without_gradient_yield_no_gradient_row() {
    let (monitor, collected) = monitor(EVERYTHING);
    let (vs, net) = two_layers(1);
    let _unused = vs.root().zeros("unused", &[3]);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    for step in 0..2 {
        optimizer.zero_grad().unwrap();
        loss(&net, step).backward();
        watch.step(&mut optimizer).unwrap();
    }
    watch.finish();
    let mut kinds: Vec<Signal> =
        collected.rows().iter().filter(|row| row.name == "unused").map(|row| row.kind).collect();
    kinds.dedup();
    assert_eq!(kinds, [Signal::ParamOrigin, Signal::ParamUpdated, Signal::ParamOrigin, Signal::ParamUpdated]);
}

/// An optimizer of the user's own whose state cannot be shown without a fault.
struct Faulty<'a>(&'a mut Optimizer);

impl MomentSource for Faulty<'_> {
    fn visit_moments(&self, _parameter: &Tensor, _visit: &mut dyn FnMut(Signal, &Tensor)) {
        panic!("no such state");
    }
}

/// A device that breaks in the middle of a backward pass.
struct FaultyDevice;

impl DeviceStatistics for FaultyDevice {
    fn launch(&mut self, _tensors: &[&Tensor], _plan: trainmon_tch::DevicePlan) -> Result<Box<dyn InFlight>, String> {
        panic!("the device is gone");
    }
}

#[test]
fn a_panic_in_a_hook_disables_it_says_so_once_and_never_reaches_the_loop() {
    let (monitor, collected) = monitor(EVERYTHING);
    let (vs, net) = two_layers(1);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    for step in 0..3 {
        optimizer.zero_grad().unwrap();
        loss(&net, step).backward();
        watch.step_with(&mut Faulty(&mut optimizer), |faulty| faulty.0.step()).unwrap();
    }
    watch.finish();
    assert_eq!(optimizer.steps_taken(&vs.trainable_variables()[0]).unwrap(), Some(3));
    assert_eq!(micro_steps(&collected.of_kind(Signal::GradUnreduced), NAMES[0]).len(), 3, "the others go on");
    let notices = collected.notices.lock().unwrap();
    let about_moments = notices.iter().filter(|notice| notice.contains("hook `moments` failed"));
    assert_eq!(about_moments.count(), 1, "{notices:?}");
}

#[test]
fn a_panic_inside_the_backward_pass_does_not_cross_into_libtorch() {
    let (monitor, collected) = monitor(EVERYTHING);
    let (vs, net) = two_layers(1);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    let builder = Watch::builder(monitor).model(&vs).device_statistics(FaultyDevice);
    let mut watch = builder.everything_through_the_device_path().build().unwrap();
    for step in 0..2 {
        optimizer.zero_grad().unwrap();
        loss(&net, step).backward();
        watch.step(&mut optimizer).unwrap();
    }
    let report = watch.finish();
    assert!(report.balances() && report.counts.not_sampled > 0 && report.counts.offered > 0, "{report}");
    assert_eq!(optimizer.steps_taken(&vs.trainable_variables()[0]).unwrap(), Some(2));
    let notices = collected.notices.lock().unwrap();
    assert!(notices.iter().any(|notice| notice.contains("the device is gone")), "{notices:?}");
}

#[test]
fn a_sparse_gradient_is_counted_and_said_once_not_fatal() {
    let (monitor, collected) = monitor(r#"{"ops": ["norm"], "wg_distribution": true}"#);
    let vs = VarStore::new(Device::Cpu);
    let sparse = nn::EmbeddingConfig { sparse: true, ..nn::EmbeddingConfig::default() };
    let table = nn::embedding(vs.root() / "table", 10, 4, sparse);
    let mut optimizer = Optimizer::new(&nn::sgd(0.0, 0.0, 0.0, false), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    for _step in 0..2 {
        optimizer.zero_grad().unwrap();
        table.forward(&Tensor::from_slice(&[1i64, 3])).sum(Kind::Float).backward();
        watch.step(&mut optimizer).unwrap();
    }
    let report = watch.finish();
    assert!(report.balances() && report.counts.not_sampled == 4, "{report}");
    assert_eq!(collected.rows(), []);
    let notices = collected.notices.lock().unwrap();
    assert_eq!(notices.iter().filter(|notice| notice.contains("sparse")).count(), 1, "{notices:?}");
}

/// Bytes read in a step in which nobody touched the gradients after the backward pass.
fn bytes_of_a_step(are_written_outside: bool) -> u64 {
    let (monitor, _collected) = monitor(r#"{"ops": ["norm"], "wg_distribution": true}"#);
    let (vs, net) = two_layers(1);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    let mut builder = Watch::builder(monitor).model(&vs);
    if are_written_outside {
        builder = builder.tensors_are_written_outside_torch();
    }
    let mut watch = builder.build().unwrap();
    loss(&net, 0).backward();
    watch.step(&mut optimizer).unwrap();
    watch.finish().cost.bytes_read
}

#[test]
fn a_gradient_torch_knows_to_be_unchanged_is_read_once() {
    let gradients = 4 * (8 * 16 + 16 + 16 * 4 + 4);
    assert_eq!(bytes_of_a_step(false), gradients);
    assert_eq!(bytes_of_a_step(true), 2 * gradients);
}

#[test]
fn another_number_of_micro_batches_than_announced_is_said_once() {
    let (monitor, collected) = monitor(r#"{"ops": ["norm"], "wg_distribution": true}"#);
    let (vs, net) = two_layers(1);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).grad_acc_steps(2).build().unwrap();
    for step in 0..3 {
        optimizer.zero_grad().unwrap();
        loss(&net, step).backward();
        watch.step(&mut optimizer).unwrap();
    }
    assert!(watch.finish().balances());
    assert_eq!(collected.of_kind(Signal::GradUnreduced), []);
    assert_eq!(collected.of_kind(Signal::GradReduced).len(), 3 * NAMES.len());
    let notices = collected.notices.lock().unwrap();
    assert_eq!(notices.iter().filter(|notice| notice.contains("`grad_acc_steps` is 2")).count(), 1, "{notices:?}");
}

#[test]
fn steps_outside_the_window_are_not_measured() {
    let (monitor, collected) = monitor(
        r#"{"ops": ["norm"], "wg_distribution": true, "xy_distribution": true, "start_step": 1, "step_interval": 2}"#,
    );
    let (vs, net) = two_layers(1);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    let net = watch.module("net", net);
    for step in 0..5 {
        optimizer.zero_grad().unwrap();
        loss(&net, step).backward();
        watch.step(&mut optimizer).unwrap();
    }
    watch.finish();
    let mut steps: Vec<u64> = collected.rows().iter().map(|row| row.step).collect();
    steps.dedup();
    assert_eq!(steps, [1, 3]);
}

#[test]
fn a_dropped_watch_leaves_no_hook_behind() {
    let (monitor, collected) = monitor(r#"{"ops": ["norm"], "wg_distribution": true}"#);
    let (vs, net) = two_layers(1);
    let one = Watch::builder(monitor.clone()).model(&vs).build().unwrap();
    let two = Watch::builder(monitor.clone()).model(&vs).build().unwrap();
    drop(one);
    loss(&net, 0).backward();
    drop(two);
    loss(&net, 1).backward();
    monitor.end_step(trainmon_agent::StepFacts::default());
    monitor.shutdown();
    let gradients = collected.of_kind(Signal::GradUnreduced);
    assert_eq!(micro_steps(&gradients, NAMES[0]), [(0, 0)], "only the second watch saw the first pass");
}

/// Two trainings, one measured in place, one through the device path.
fn both_paths(json: &str) -> [Collected; 2] {
    [false, true].map(|is_device| {
        let (monitor, collected) = monitor(json);
        let (vs, net) = two_layers(3);
        let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
        let mut builder = Watch::builder(monitor).model(&vs).grad_acc_steps(2).device_statistics(LibtorchStatistics);
        if is_device {
            builder = builder.everything_through_the_device_path();
        }
        let mut watch = builder.build().unwrap();
        let net = watch.module("net", net);
        for step in 0..3 {
            optimizer.zero_grad().unwrap();
            for micro in 0..2 {
                loss(&net, 2 * step + micro).backward();
            }
            optimizer.clip_grad_norm(1e-2).unwrap();
            watch.step(&mut optimizer).unwrap();
        }
        let report = watch.finish();
        assert!(report.balances() && report.lost() == 0, "{report}");
        collected
    })
}

#[test]
fn the_device_path_finds_what_the_host_path_finds() {
    let [host, device] = both_paths(EVERYTHING);
    assert_eq!(host.batches().len(), device.batches().len());
    let by_place = |row: &Row| (row.step, row.kind, row.name.clone(), row.micro_step);
    let (mut host, mut device) = (host.rows(), device.rows());
    host.sort_by_key(by_place);
    device.sort_by_key(by_place);
    assert_eq!(host.iter().map(by_place).collect::<Vec<_>>(), device.iter().map(by_place).collect::<Vec<_>>());
    for (expected, found) in host.iter().zip(&device) {
        let (a, b) = (expected.reading.unwrap(), found.reading.unwrap());
        let near = |a: f64, b: f64| (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 * a.abs().max(1e-7);
        assert_eq!((a.dtype, a.shape, a.nans, a.zeros, a.count), (b.dtype, b.shape, b.nans, b.zeros, b.count));
        for (a, b) in [
            (a.min.as_f64(), b.min.as_f64()),
            (a.max.as_f64(), b.max.as_f64()),
            (a.mean, b.mean),
            (a.norm, b.norm),
            (a.std, b.std),
        ] {
            assert!(near(a, b), "{expected:?}\n{found:?}");
        }
    }
}

#[test]
fn a_skipped_step_leaves_nothing_behind_in_the_next() {
    let (monitor, collected) = monitor(r#"{"ops": ["norm", "nans"], "wg_distribution": true}"#);
    let (vs, net) = two_layers(3);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    optimizer.zero_grad().unwrap();
    (loss(&net, 0) * f64::NAN).backward();
    watch.skip_step();
    optimizer.zero_grad().unwrap();
    loss(&net, 1).backward();
    let expected = norm_of(&parameter(&vs, NAMES[0]).grad());
    watch.step(&mut optimizer).unwrap();
    let report = watch.finish();
    assert!(report.balances(), "{report}");
    let gradients = collected.of_kind(Signal::GradUnreduced);
    assert_near(reading(&gradients, 0, NAMES[0]).norm, expected);
    assert!(gradients.iter().all(|row| row.step == 0 && row.reading.unwrap().nans == 0), "{gradients:?}");
}

#[test]
fn a_parameter_that_is_unfrozen_in_mid_run_is_measured_from_the_next_step_on() {
    let (monitor, collected) = monitor(r#"{"ops": ["norm"], "wg_distribution": true}"#);
    let (mut vs, net) = two_layers(3);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    vs.freeze();
    let _head = parameter(&vs, NAMES[2]).set_requires_grad(true);
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    for step in 0..3 {
        optimizer.zero_grad().unwrap();
        loss(&net, step).backward();
        if step == 0 {
            vs.unfreeze();
        }
        watch.step(&mut optimizer).unwrap();
    }
    watch.finish();
    let gradients = collected.of_kind(Signal::GradUnreduced);
    assert_eq!(micro_steps(&gradients, NAMES[2]), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(micro_steps(&gradients, NAMES[0]), [(1, 0), (2, 0)]);
}

#[test]
fn inputs_of_all_micro_batches_may_wait_for_their_backward_passes() {
    let (monitor, collected) = monitor(r#"{"ops": ["norm"], "xy_distribution": true, "all_xy": true}"#);
    let (vs, net) = two_layers(3);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).grad_acc_steps(2).build().unwrap();
    let net = watch.module("stage", net);
    // As a pipeline stage does: every forward pass first, from inputs that came over the wire.
    let inputs: Vec<Tensor> =
        (0..2).map(|_| Tensor::randn([4, 8], (Kind::Float, Device::Cpu)).set_requires_grad(true)).collect();
    let losses: Vec<Tensor> = inputs.iter().map(|input| net.forward(input).square().sum(Kind::Float)).collect();
    for loss in &losses {
        loss.backward();
    }
    watch.step(&mut optimizer).unwrap();
    watch.finish();
    let gradients = collected.of_kind(Signal::ActvGrad);
    let of_input: Vec<&Row> = gradients.iter().filter(|row| row.name == "stage.input").collect();
    assert_eq!(of_input.iter().map(|row| row.micro_step).collect::<Vec<_>>(), [0, 1]);
    for (row, input) in of_input.iter().zip(&inputs) {
        assert_near(row.reading.unwrap().norm, norm_of(&input.grad()));
    }
}

#[test]
fn numbers_of_the_loops_own_arrive_once_per_step_under_their_names() {
    let (monitor, collected) = monitor(r#"{"wg_distribution": true, "ops": ["norm"]}"#);
    let (vs, net) = two_layers(3);
    let mut optimizer = Optimizer::new(&nn::sgd(0.0, 0.0, 0.0, false), &vs, 1e-2).unwrap();
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    for step in 0..3 {
        optimizer.zero_grad().unwrap();
        loss(&net, step).backward();
        watch.scalar("accuracy", -1.0);
        watch.scalar("tokens", 100.0 * step as f64);
        watch.scalar("accuracy", step as f64 / 4.0);
        watch.step(&mut optimizer).unwrap();
    }
    assert!(watch.finish().balances());
    let told: Vec<_> = collected
        .of_kind(Signal::Scalar)
        .into_iter()
        .map(|row| (row.step, row.name, row.reading.unwrap().mean))
        .collect();
    let of = |step: u64, name: &str, value: f64| (step, name.to_owned(), value);
    let expected =
        [0.0, 1.0, 2.0].map(|step| [of(step as u64, "accuracy", step / 4.0), of(step as u64, "tokens", 100.0 * step)]);
    assert_eq!(told, expected.concat());
}

#[test]
fn targets_that_name_nothing_are_told_once_with_the_nearest_names() {
    for (targets, expected) in [
        (r#"{"second.wieght": {}, "first": {}}"#, Some("`targets`: `second.wieght` matches nothing in the model")),
        (r#"{"first": {}, "head": {}}"#, None),
        (r#"{"first": {}, "hidden": {}}"#, None),
        (r#"{"haed": {}}"#, Some("`targets`: `haed` matches nothing in the model")),
    ] {
        let config =
            format!(r#"{{"wg_distribution": true, "xy_distribution": true, "ops": ["norm"], "targets": {targets}}}"#);
        let (monitor, collected) = monitor(&config);
        let (vs, net) = two_layers(3);
        let mut optimizer = Optimizer::new(&nn::sgd(0.0, 0.0, 0.0, false), &vs, 1e-2).unwrap();
        let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
        let net = watch.module("head", net);
        for step in 0..2 {
            optimizer.zero_grad().unwrap();
            let loss = loss(&net, step);
            watch.observe("hidden", &loss);
            loss.backward();
            watch.step(&mut optimizer).unwrap();
        }
        watch.finish();
        let said = collected.notices.lock().unwrap();
        let told: Vec<&str> =
            said.iter().map(String::as_str).filter(|one| one.contains("nothing in the model")).collect();
        assert_eq!(told, Vec::from_iter(expected), "{targets}");
    }
}

#[test]
fn a_tracker_of_pythons_is_told_to_have_no_effect_here() {
    for key in ["wandb", "mlflow"] {
        let (monitor, collected) = monitor(&format!(r#"{{"wg_distribution": true, "{key}": true}}"#));
        monitor.shutdown();
        let said = collected.notices.lock().unwrap();
        assert!(said.contains(&format!("`{key}` has no effect: this front does not support it")), "{said:?}");
    }
}
