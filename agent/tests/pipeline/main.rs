//! The pipeline with exporters that stall and fail on cue: nothing blocks, every record has a fate.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

#[path = "../common/mod.rs"]
mod common;
mod late;
mod meter;
mod probe;
mod shutdown;

use std::time::Duration;

use common::config;
use probe::*;
use trainmon_agent::StepFacts;
use trainmon_agent::core::config::{Config, Window};
use trainmon_agent::core::{Kind, MicroStep, Record, Step, TensorView};

/// As [`config`], of parameters and their updates.
fn with_parameters() -> Config {
    let text = r#"{"param_distribution": true, "update": true, "ops": ["norm"]}"#;
    let parsed = Config::parse(text, "test.json", &|_| None).unwrap().config;
    Config { csv: None, prometheus: None, pipeline: config().pipeline, ..parsed }
}

#[test]
fn every_step_arrives_in_order_and_the_books_balance() {
    let probe = Probe::default();
    let (monitor, _heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    for step in 0..50 {
        one_step(&monitor, tensor);
        probe.wait_until(|state| state.steps.len() > step);
    }
    let report = monitor.shutdown();
    assert_eq!(probe.steps(), (0..50).map(|step| (step, 1)).collect::<Vec<_>>());
    assert!(report.balances(), "{report:?}");
    assert_eq!((report.counts.observed, report.lost(), report.next_step), (50, 0, Step(50)));
}

#[test]
fn a_stalled_exporter_never_blocks_a_step_and_every_loss_is_counted() {
    let probe = Probe::default();
    probe.set(|state| state.closed = true);
    let (monitor, _heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    one_step(&monitor, tensor);
    probe.wait_until(|state| state.waiting);
    // The exporter holds one batch; its queue takes two; the rest has nowhere to go. That this loop ends is the claim.
    for _ in 1..100 {
        one_step(&monitor, tensor);
    }
    probe.set(|state| state.closed = false);
    let report = monitor.shutdown();
    assert!(report.balances(), "{report:?}");
    assert_eq!(report.counts.observed, 100);
    assert!(report.lost() >= 90, "{report:?}");
    assert_eq!(report.sinks[0].counts.exported + report.lost(), 100);
}

#[test]
fn a_failing_exporter_speaks_once_and_again_when_it_recovers() {
    let probe = Probe::default();
    let (monitor, heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    probe.set(|state| state.mood = Mood::Fail);
    for failed in 1..=3 {
        one_step(&monitor, tensor);
        wait_for(|| monitor.report().sinks[0].counts.failed == failed);
    }
    // Another kind of failure is told too, once, whatever order they come in.
    for (mood, failed) in [(Mood::Overflow, 4), (Mood::Fail, 5), (Mood::Overflow, 6)] {
        probe.set(|state| state.mood = mood);
        one_step(&monitor, tensor);
        wait_for(|| monitor.report().sinks[0].counts.failed == failed);
    }
    probe.set(|state| state.mood = Mood::Work);
    one_step(&monitor, tensor);
    let report = monitor.shutdown();
    assert_eq!((report.sinks[0].counts.failed, report.sinks[0].counts.exported), (6, 1));
    assert!(report.balances());
    assert_eq!((heard.containing("cannot write `probe`"), heard.containing("works again; 6 records")), (1, 1));
    assert_eq!(heard.containing("tags beyond the limit of 1: 2"), 1);
}

#[test]
fn an_exporter_that_panics_loses_its_batch_only() {
    let probe = Probe::default();
    let (monitor, heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    probe.set(|state| state.mood = Mood::Panic);
    one_step(&monitor, tensor);
    wait_for(|| monitor.report().sinks[0].counts.failed == 1);
    probe.set(|state| state.mood = Mood::Work);
    one_step(&monitor, tensor);
    let report = monitor.shutdown();
    assert_eq!(probe.steps(), [(1, 1)]);
    assert!(report.balances());
    assert_eq!(heard.containing("told to panic"), 1);
}

#[test]
fn the_window_stops_the_measuring_and_says_so_in_the_books() {
    let probe = Probe::default();
    let window = Window { start_step: 1, step_interval: 2, collect_times: 2, ..Window::default() };
    let (monitor, _heard) = start(Config { window, ..config() }, &probe);
    let tensor = monitor.register("fc.weight", 0);
    let mut collecting = Vec::new();
    for step in 0..8 {
        collecting.push(monitor.collecting());
        one_step(&monitor, tensor);
        probe.wait_until(|state| state.steps.len() > step);
    }
    let report = monitor.shutdown();
    assert_eq!(collecting, [false, true, false, true, false, false, false, false]);
    let measured: Vec<u64> =
        probe.steps().into_iter().filter(|(_, records)| *records > 0).map(|(step, _)| step).collect();
    assert_eq!(measured, [1, 3]);
    assert_eq!((report.counts.observed, report.counts.not_sampled, report.counts.offered), (8, 6, 2));
    assert_eq!(report.cost.bytes_read, 16, "a step outside the window reads no tensor");
}

#[test]
fn a_rank_that_is_not_listed_measures_nothing() {
    let probe = Probe::default();
    let (monitor, _heard) = start(Config { ranks: vec![3], ..config() }, &probe);
    let tensor = monitor.register("fc.weight", 0);
    one_step(&monitor, tensor);
    let report = monitor.shutdown();
    assert_eq!((report.counts.not_sampled, report.counts.offered, report.cost.bytes_read), (1, 0, 0));
}

#[test]
fn a_step_that_never_ended_is_counted_as_not_sampled() {
    let probe = Probe::default();
    let (monitor, _heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    one_step(&monitor, tensor);
    let data = [1.0f32];
    monitor.observe(tensor, Kind::GradReduced, MicroStep(0), &TensorView::from_slice(&data, &[1]).unwrap());
    let report = monitor.shutdown();
    assert_eq!((report.counts.offered, report.counts.not_sampled), (1, 1));
    assert!(report.balances());
    // After the shutdown nothing is measured any more, and nothing breaks.
    one_step(&monitor, tensor);
    assert!(monitor.report().balances());
}

#[test]
fn a_step_that_never_ends_is_bounded_and_says_so_once() {
    const MOST: u64 = 1 << 18;
    let probe = Probe::default();
    let (monitor, heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    let record = Record { tensor, kind: Kind::GradReduced, micro_step: MicroStep(0), reading: None };
    for _ in 0..MOST + 10 {
        monitor.record(record, Duration::ZERO, 0);
    }
    monitor.end_step(StepFacts::default());
    let report = monitor.shutdown();
    assert_eq!((report.counts.observed, report.counts.not_sampled), (MOST + 10, 10));
    assert!(report.balances());
    assert_eq!(heard.containing("end each step with `Watch::step`"), 1);
}

#[test]
fn a_skipped_step_keeps_its_number_and_its_readings_are_discarded() {
    let probe = Probe::default();
    let (monitor, _heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    let data = [f32::INFINITY];
    monitor.observe(tensor, Kind::GradReduced, MicroStep(0), &TensorView::from_slice(&data, &[1]).unwrap());
    monitor.skip_step();
    one_step(&monitor, tensor);
    let report = monitor.shutdown();
    assert_eq!(probe.steps(), [(0, 1)]);
    assert_eq!((report.counts.observed, report.counts.not_sampled, report.next_step), (2, 1, Step(1)));
    assert!(report.balances());
}

#[test]
fn reasons_that_differ_in_numbers_only_are_one_reason() {
    let probe = Probe::default();
    let (monitor, heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    for address in [0xdead_beef_u64, 0xf00d, 12] {
        monitor.observe_unsupported(tensor, Kind::GradReduced, &format!("memory at {address:#x} is not aligned"));
    }
    monitor.shutdown();
    assert_eq!(heard.containing("is not aligned"), 1);
}

#[test]
fn unsupported_tensors_are_counted_and_named_once() {
    let probe = Probe::default();
    let (monitor, heard) = start(config(), &probe);
    let tensor = monitor.register("embedding.weight", 0);
    for _ in 0..5 {
        monitor.observe_unsupported(tensor, Kind::GradReduced, "its layout is sparse");
        monitor.end_step(StepFacts::default());
    }
    let report = monitor.shutdown();
    assert_eq!((report.counts.observed, report.counts.not_sampled), (5, 5));
    assert_eq!(heard.containing("`embedding.weight` is not measured: its layout is sparse"), 1);
}

/// Waits for a condition, not for a time; a broken monitor is caught by the test runner's own limit.
fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
