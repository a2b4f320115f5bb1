//! The optimizer: equal to tch's, its state readable, its checkpoints exact.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{bits, loss, parameter_bits, two_layers};
use tch::nn::{self, OptimizerConfig as _};
use trainmon_agent::core::Kind;
use trainmon_tch::{Adagrad, CheckpointError, MomentSource as _, Optimizer, OptimizerConfig, OptimizerError};

const STEPS: i64 = 20;

fn equals_tch<C: nn::OptimizerConfig + OptimizerConfig + Copy>(config: C) {
    let (theirs_vs, theirs_net) = two_layers(7);
    let (ours_vs, ours_net) = two_layers(7);
    let mut theirs = config.build(&theirs_vs, 1e-2).unwrap();
    let mut ours = Optimizer::new(&config, &ours_vs, 1e-2).unwrap();
    for step in 0..STEPS {
        theirs.backward_step_clip_norm(&loss(&theirs_net, step), 0.05);
        ours.backward_step_clip_norm(&loss(&ours_net, step), 0.05).unwrap();
        if step == 5 {
            theirs.set_lr_group(1, 5e-3);
            ours.set_lr_group(1, 5e-3).unwrap();
            theirs.set_weight_decay_group(0, 0.1);
            ours.set_weight_decay_group(0, 0.1).unwrap();
        }
        if step == 10 {
            theirs.set_lr(2e-3);
            ours.set_lr(2e-3).unwrap();
        }
        assert_eq!(parameter_bits(&theirs_vs), parameter_bits(&ours_vs), "step {step}");
    }
}

#[test]
fn every_kind_tch_has_steps_bitwise_as_tch_does() {
    equals_tch(nn::Adam::default().amsgrad(true));
    equals_tch(nn::AdamW::default());
    equals_tch(nn::sgd(0.9, 0.0, 1e-4, true));
    equals_tch(nn::sgd(0.5, 0.1, 0.0, false));
    equals_tch(nn::rms_prop(0.98, 1e-8, 0.0, 0.9, true));
}

#[test]
fn value_clipping_equals_tch() {
    let (theirs_vs, theirs_net) = two_layers(3);
    let (ours_vs, ours_net) = two_layers(3);
    let mut theirs = nn::Adam::default().build(&theirs_vs, 1e-2).unwrap();
    let mut ours = Optimizer::new(&nn::Adam::default(), &ours_vs, 1e-2).unwrap();
    for step in 0..3 {
        theirs.backward_step_clip(&loss(&theirs_net, step), 1e-3);
        ours.backward_step_clip(&loss(&ours_net, step), 1e-3).unwrap();
    }
    assert_eq!(parameter_bits(&theirs_vs), parameter_bits(&ours_vs));
}

#[test]
fn adams_first_moments_are_the_gradient_times_one_minus_beta() {
    let (vs, net) = two_layers(1);
    let mut optimizer = Optimizer::new(&nn::adam(0.9, 0.99, 0.0), &vs, 1e-2).unwrap();
    let parameter = &vs.trainable_variables()[0];
    let mut seen = 0;
    optimizer.visit_moments(parameter, &mut |_, _| seen += 1);
    assert_eq!(seen, 0, "no state before the first step");
    assert_eq!(optimizer.steps_taken(parameter).unwrap(), None);
    optimizer.backward_step(&loss(&net, 0)).unwrap();
    let gradient: Vec<f32> = parameter.grad().contiguous().view(-1).try_into().unwrap();
    let moment = |kind| -> Vec<f32> {
        let tensor = optimizer.moment(parameter, kind).unwrap().unwrap();
        tensor.contiguous().view(-1).try_into().unwrap()
    };
    let (first, second) = (moment(Kind::ExpAvg), moment(Kind::ExpAvgSq));
    for ((g, m), v) in gradient.iter().zip(first).zip(second) {
        let g = f64::from(*g);
        assert!((f64::from(m) - 0.1 * g).abs() <= 1e-6 * g.abs(), "{m} for gradient {g}");
        assert!((f64::from(v) - 0.01 * g * g).abs() <= 1e-5 * g * g, "{v} for gradient {g}");
    }
    assert_eq!(optimizer.steps_taken(parameter).unwrap(), Some(1));
    assert!(optimizer.moment(parameter, Kind::MaxExpAvgSq).unwrap().is_none());
    let mut kinds = Vec::new();
    optimizer.visit_moments(parameter, &mut |kind, _| kinds.push(kind));
    assert_eq!(kinds, [Kind::ExpAvg, Kind::ExpAvgSq]);
}

#[test]
fn adagrad_sums_squares_from_its_first_value() {
    let (vs, net) = two_layers(1);
    let config = Adagrad { initial_accumulator: 0.25, ..Adagrad::default() };
    let mut optimizer = Optimizer::new(&config, &vs, 1e-2).unwrap();
    let parameter = &vs.trainable_variables()[0];
    let before = parameter.copy();
    optimizer.backward_step(&loss(&net, 0)).unwrap();
    let sum = optimizer.moment(parameter, Kind::Sum).unwrap().unwrap();
    let expected = parameter.grad().square() + 0.25;
    assert!((&sum - &expected).abs().max().double_value(&[]) < 1e-7);
    let stepped = before - parameter.grad() * 1e-2 / (expected.sqrt() + 1e-10);
    assert!((parameter - stepped).abs().max().double_value(&[]) < 1e-6);
}

#[test]
fn variables_made_after_the_optimizer_join_it() {
    let (vs, net) = two_layers(1);
    let mut optimizer = Optimizer::new(&Adagrad::default(), &vs, 1e-1).unwrap();
    let late = vs.root().ones("late", &[3]);
    let loss = loss(&net, 0) + late.square().sum(tch::Kind::Float);
    optimizer.backward_step(&loss).unwrap();
    assert_eq!(Vec::<f32>::try_from(&late).unwrap(), [0.9f32; 3]);
    assert_eq!(optimizer.trainable_variables().len(), 5);
}

fn resumes_bitwise(config: &(impl OptimizerConfig + ?Sized)) {
    struct Dyn<'a, C: ?Sized>(&'a C);
    impl<C: OptimizerConfig + ?Sized> OptimizerConfig for Dyn<'_, C> {
        fn settings(&self, learning_rate: f64) -> trainmon_tch::Settings {
            self.0.settings(learning_rate)
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("optimizer.safetensors");
    let (vs, net) = two_layers(11);
    let mut optimizer = Optimizer::new(&Dyn(config), &vs, 1e-2).unwrap();
    for step in 0..6 {
        optimizer.backward_step(&loss(&net, step)).unwrap();
    }
    optimizer.set_lr_group(1, 3e-3).unwrap();
    optimizer.save(&file).unwrap();
    let (resumed_vs, resumed_net) = two_layers(99);
    tch::no_grad(|| {
        for (mut to, from) in resumed_vs.trainable_variables().into_iter().zip(vs.trainable_variables()) {
            to.copy_(&from);
        }
    });
    let mut resumed = Optimizer::new(&Dyn(config), &resumed_vs, 1.0).unwrap();
    resumed.load(&file).unwrap();
    assert_eq!(resumed.group_options(1).unwrap().lr, 3e-3);
    for step in 6..12 {
        optimizer.backward_step(&loss(&net, step)).unwrap();
        resumed.backward_step(&loss(&resumed_net, step)).unwrap();
        assert_eq!(parameter_bits(&vs), parameter_bits(&resumed_vs), "step {step}");
    }
}

#[test]
fn a_saved_optimizer_resumes_bitwise() {
    let configs: [&dyn OptimizerConfig; 6] = [
        &nn::AdamW::default(),
        &nn::Adam::default().amsgrad(true),
        &nn::sgd(0.9, 0.0, 1e-4, true),
        &nn::sgd(0.0, 0.0, 0.0, false),
        &nn::rms_prop(0.98, 1e-8, 0.0, 0.9, true),
        &Adagrad { lr_decay: 0.1, ..Adagrad::default() },
    ];
    for config in configs {
        resumes_bitwise(config);
    }
}

/// What a refused file says; the optimizer must be as before.
fn refused(optimizer: &mut Optimizer, file: &std::path::Path) -> CheckpointError {
    let parameter = &optimizer.trainable_variables()[0];
    let before = optimizer.moment(parameter, Kind::ExpAvg).unwrap().map(|moment| bits(&moment));
    let error = optimizer.load(file).unwrap_err();
    assert_eq!(optimizer.moment(parameter, Kind::ExpAvg).unwrap().map(|moment| bits(&moment)), before);
    match error {
        OptimizerError::Checkpoint { source, .. } => source,
        other => panic!("{other}"),
    }
}

#[test]
fn files_that_do_not_fit_are_refused_and_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("optimizer.safetensors");
    let (vs, net) = two_layers(5);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    optimizer.backward_step(&loss(&net, 0)).unwrap();
    optimizer.save(&file).unwrap();

    let mut adam = Optimizer::new(&nn::Adam::default(), &vs, 1e-2).unwrap();
    assert_eq!(
        refused(&mut adam, &file).to_string(),
        "the file contains the state of adamw, but the optimizer is adam"
    );

    let (larger, _net) = two_layers(5);
    let _third = larger.root().zeros("third", &[2]);
    let mut more = Optimizer::new(&nn::AdamW::default(), &larger, 1e-2).unwrap();
    assert!(matches!(refused(&mut more, &file), CheckpointError::WrongParameterCount { found: 4, expected: 5 }));

    let wide = nn::VarStore::new(tch::Device::Cpu);
    let second = (wide.root() / "second").set_group(1);
    let first = wide.root() / "first";
    let _tensors = [first.zeros("weight", &[16, 9]), first.zeros("bias", &[16])];
    let _tensors = [second.zeros("weight", &[4, 16]), second.zeros("bias", &[4])];
    let mut wider = Optimizer::new(&nn::AdamW::default(), &wide, 1e-2).unwrap();
    let names: Vec<String> = vs.variables().into_keys().collect();
    assert!(names.contains(&"first.weight".to_owned()));
    let why = refused(&mut wider, &file).to_string();
    assert!(why.contains("first.") && (why.contains("[16, 9]") || why.contains("is `first")), "{why}");

    let bytes = std::fs::read(&file).unwrap();
    for length in [0, 4, 200, bytes.len() - 1] {
        std::fs::write(&file, &bytes[..length]).unwrap();
        let why = refused(&mut optimizer, &file);
        assert!(matches!(why, CheckpointError::Damaged { .. }), "cut to {length}: {why}");
    }
    vs.save(directory.path().join("model.safetensors")).unwrap();
    let why = refused(&mut optimizer, &directory.path().join("model.safetensors"));
    assert!(matches!(why, CheckpointError::NotACheckpoint { .. }), "{why}");
    let missing = optimizer.load(directory.path().join("nowhere")).unwrap_err();
    assert!(matches!(missing, OptimizerError::Io { .. }), "{missing}");
}

#[test]
fn an_option_libtorch_refuses_is_an_error_not_an_abort() {
    let (vs, _net) = two_layers(5);
    let error = Optimizer::new(&nn::AdamW::default(), &vs, -1.0).unwrap_err();
    assert!(error.to_string().contains("Invalid learning rate"), "{error}");
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1.0).unwrap();
    assert!(matches!(optimizer.set_lr_group(7, 1.0), Err(OptimizerError::NoSuchGroup { group: 7, groups: 2 })));
}
