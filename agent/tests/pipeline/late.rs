//! Numbers and readings that come after their step.

use crate::common::config;
use crate::probe::*;
use trainmon_agent::core::config::{Config, Pipeline};
use trainmon_agent::core::{GradNorm, Kind, MicroStep, Record, TensorStats, TensorView};
use trainmon_agent::{LateNumber, Monitor, StepFacts};

#[test]
fn a_step_waits_for_its_late_readings_and_keeps_its_place() {
    let probe = Probe::default();
    let (monitor, _heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    let late = Record {
        tensor,
        kind: Kind::GradReduced,
        micro_step: MicroStep(0),
        reading: Some(TensorStats::of_value(1.0).into()),
    };
    let pending = monitor.pending_step();
    monitor.end_step(StepFacts::default());
    one_step(&monitor, tensor);
    assert!(probe.steps().is_empty());
    pending.record(late);
    pending.record(late);
    drop(pending);
    let report = monitor.shutdown();
    assert_eq!(probe.steps(), [(0, 2), (1, 1)]);
    assert!(report.balances());
}

#[test]
fn records_that_are_taken_back_leave_those_of_others_and_are_counted() {
    let probe = Probe::default();
    let (monitor, _heard) = start(config(), &probe);
    let [replaced, wrong, other] = ["a", "b", "c"].map(|name| monitor.register(name, 0));
    let data = [3.0f32];
    let view = TensorView::from_slice(&data, &[1]).unwrap();
    for micro_step in 0..3 {
        for tensor in [replaced, wrong, other] {
            monitor.observe(tensor, Kind::GradReduced, MicroStep(micro_step), &view);
        }
    }
    monitor.retract(Kind::GradUnreduced, &[replaced, wrong, other], false);
    monitor.retract(Kind::GradReduced, &[replaced], true);
    monitor.retract(Kind::GradReduced, &[wrong], false);
    monitor.end_step(StepFacts::default());
    let report = monitor.shutdown();
    assert_eq!(probe.steps(), [(0, 1 + 3)]);
    assert_eq!(probe.0.0.lock().unwrap().micro_steps, [0, 1, 2, 2], "in the order they came in");
    assert_eq!(report.counts.not_sampled, 2 + 3);
    assert!(report.balances());
}

#[test]
fn the_global_norms_come_with_the_step_or_late() {
    let probe = Probe::default();
    let pipeline = Pipeline { queue_steps: 10, ..Pipeline::default() };
    let (monitor, heard) = start(Config { pipeline, ..config() }, &probe);
    let tensor = monitor.register("fc.weight", 0);
    let facts = StepFacts { grad_norm: GradNorm::Known(2.0), framework_grad_norm: Some(2.0), ..StepFacts::default() };
    monitor.end_step(facts);
    // Late, after the end of the step.
    let pending = monitor.pending_step();
    monitor.end_step(StepFacts { grad_norm: GradNorm::Unknown, ..StepFacts::default() });
    pending.set_grad_norm(3.0);
    pending.set_framework_grad_norm(6.0);
    drop(pending);
    // Told before the end of the step, which then says that it does not know.
    let pending = monitor.pending_step();
    pending.set_grad_norm(4.0);
    monitor.end_step(StepFacts { grad_norm: GradNorm::Unknown, ..StepFacts::default() });
    drop(pending);
    // A skipped step takes its norms with it.
    let pending = monitor.pending_step();
    pending.set_grad_norm(99.0);
    pending.set_framework_grad_norm(99.0);
    monitor.skip_step();
    drop(pending);
    one_step(&monitor, tensor);
    // Far too late: the batch has left.
    let pending = monitor.pending_step();
    for _ in 0..6 {
        monitor.end_step(StepFacts { grad_norm: GradNorm::Unknown, ..StepFacts::default() });
    }
    pending.set_grad_norm(5.0);
    drop(pending);
    monitor.shutdown();
    let norms = probe.0.0.lock().unwrap().norms.clone();
    let expected = [(Some(2.0), Some(2.0)), (Some(3.0), Some(6.0)), (Some(4.0), None), (Some(5.0f64.sqrt()), None)];
    assert_eq!(norms[..4], expected);
    assert_eq!(norms[4..], [(None, None); 6]);
    assert_eq!(heard.containing("differs from the framework's by more than 1 % at step 1 "), 1);
}

#[test]
fn the_loss_comes_with_the_step_or_late() {
    let probe = Probe::default();
    let pipeline = Pipeline { queue_steps: 20, ..Pipeline::default() };
    let (monitor, _heard) = start(Config { pipeline, ..config() }, &probe);
    let of = |loss| StepFacts { loss: Some(loss), ..StepFacts::default() };
    monitor.end_step(of(1.0));
    // Late, when a later step has a loss of its own already.
    let pending = monitor.pending_step();
    monitor.end_step(StepFacts::default());
    monitor.end_step(of(3.0));
    pending.set_loss(2.0);
    drop(pending);
    // Told before the end of the step: it stands, whatever the step's end says.
    let pending = monitor.pending_step();
    pending.set_loss(4.0);
    drop(pending);
    monitor.end_step(of(99.0));
    // A skipped step takes its loss with it.
    let pending = monitor.pending_step();
    pending.set_loss(99.0);
    monitor.skip_step();
    drop(pending);
    monitor.end_step(StepFacts::default());
    // Far too late: the batch has left.
    let pending = monitor.pending_step();
    for _ in 0..6 {
        monitor.end_step(StepFacts::default());
    }
    pending.set_loss(99.0);
    drop(pending);
    monitor.shutdown();
    let losses = probe.0.0.lock().unwrap().losses.clone();
    let (first, rest) = losses.split_at(5);
    assert_eq!(first, [Some(1.0), Some(2.0), Some(3.0), Some(4.0), None]);
    assert_eq!(rest, [None; 6]);
}

/// Ends steps that know no norm of their own.
fn end_steps(monitor: &Monitor, count: usize) {
    for _ in 0..count {
        monitor.end_step(StepFacts { grad_norm: GradNorm::Unknown, ..StepFacts::default() });
    }
}

#[test]
fn a_step_waits_longer_for_a_norm_that_is_announced_and_the_queue_takes_all_that_waited() {
    let probe = Probe::default();
    // The exporter comes late too: what leaves at once has to fit.
    probe.set(|state| state.closed = true);
    let pipeline = Pipeline { queue_steps: 16, ..Pipeline::default() };
    let (monitor, _heard) = start(Config { pipeline, ..config() }, &probe);
    let pending = monitor.pending_step();
    pending.expect(LateNumber::GradNorm);
    end_steps(&monitor, 12);
    assert!(pending.set_grad_norm(5.0), "three quarters of the queue");
    drop(pending);
    probe.set(|state| state.closed = false);
    let report = monitor.shutdown();
    assert_eq!(probe.0.0.lock().unwrap().norms[0], (Some(5.0), None));
    assert_eq!(probe.steps().len(), 12);
    assert_eq!((report.missing.total(), report.steps.dropped), (0, 0), "{report}");
}

#[test]
fn a_number_that_does_not_come_in_time_is_counted_and_said_once() {
    let probe = Probe::default();
    let pipeline = Pipeline { queue_steps: 40, ..Pipeline::default() };
    let (monitor, heard) = start(Config { pipeline, ..config() }, &probe);
    let announced = |number| {
        let pending = monitor.pending_step();
        pending.expect(number);
        pending
    };
    let norms = [(); 2].map(|()| {
        let pending = announced(LateNumber::GradNorm);
        end_steps(&monitor, 1);
        pending
    });
    end_steps(&monitor, 30);
    for pending in norms {
        assert!(!pending.set_grad_norm(7.0), "it has left");
    }
    // A loss is waited for as any reading is.
    let loss = announced(LateNumber::Loss);
    end_steps(&monitor, 5);
    assert!(!loss.set_loss(7.0), "it has left");
    drop(loss);
    // What is left out on purpose is not missing, nor what a skipped step was to have.
    announced(LateNumber::GradNorm).forgo(LateNumber::GradNorm);
    end_steps(&monitor, 1);
    drop(announced(LateNumber::GradNorm));
    monitor.skip_step();
    end_steps(&monitor, 1);
    // Given up: whoever did so has said why.
    drop(announced(LateNumber::GradNorm));
    end_steps(&monitor, 1);
    let report = monitor.shutdown();
    assert!(probe.0.0.lock().unwrap().norms.iter().all(|norms| *norms == (None, None)));
    let missing = report.missing;
    assert_eq!((missing.of(LateNumber::GradNorm), missing.of(LateNumber::Loss), missing.total()), (3, 1, 4));
    let line = "missing: the global gradient norm of 3 steps, the loss of 1 step: ";
    assert!(report.to_string().contains(line) && report.to_string().contains("raise `queue_steps`"), "{report}");
    assert_eq!(heard.containing("is delivered without its global gradient norm"), 1);
    assert_eq!(heard.containing("is delivered without its loss"), 1);
}

#[test]
fn a_reading_that_comes_far_too_late_is_counted_not_misplaced() {
    let probe = Probe::default();
    let pipeline = Pipeline { queue_steps: 10, ..Pipeline::default() };
    let (monitor, _heard) = start(Config { pipeline, ..config() }, &probe);
    let tensor = monitor.register("fc.weight", 0);
    let pending = monitor.pending_step();
    for _ in 0..10 {
        one_step(&monitor, tensor);
    }
    pending.record(Record { tensor, kind: Kind::GradReduced, micro_step: MicroStep(0), reading: None });
    drop(pending);
    let report = monitor.shutdown();
    assert_eq!(probe.steps(), (0..10).map(|step| (step, 1)).collect::<Vec<_>>());
    assert_eq!(report.counts.not_sampled, 1);
    assert!(report.balances());
}
