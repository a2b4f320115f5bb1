//! The end of a monitor, also where an exporter or a listener does not do its part.

use std::sync::{Arc, Mutex};

use crate::common::config;
use crate::probe::*;
use trainmon_agent::core::config::{Config, Pipeline};
use trainmon_agent::core::{Kind, MicroStep, TensorView};
use trainmon_agent::exporters::Exporter;
use trainmon_agent::{Monitor, Notices, Options, Ranks};

#[test]
fn an_exporter_that_never_returns_is_left_behind_at_the_deadline() {
    let probe = Probe::default();
    probe.set(|state| state.closed = true);
    let pipeline = Pipeline { queue_steps: 8, shutdown_timeout_ms: 100 };
    let (monitor, heard) = start(Config { pipeline, ..config() }, &probe);
    let tensor = monitor.register("fc.weight", 0);
    for _ in 0..4 {
        one_step(&monitor, tensor);
    }
    let report = monitor.shutdown();
    assert!(report.balances(), "{report:?}");
    assert_eq!(report.sinks[0].counts.abandoned, 4);
    assert_eq!(heard.containing("4 records were still queued"), 1);
    // Set free afterwards, it must not change the closed counts.
    probe.set(|state| state.closed = false);
    probe.wait_until(|state| !state.steps.is_empty());
    assert!(monitor.report().balances());
}

#[test]
fn a_worker_that_never_comes_back_leaves_balanced_books() {
    let probe = Probe::default();
    probe.set(|state| state.closed = true);
    let gate = Probe::default();
    gate.set(|state| state.closed = true);
    let (held, said) = (gate.clone(), Arc::new(Mutex::new(Vec::new())));
    let heard = Arc::clone(&said);
    let notices = Notices::new(move |notice| {
        heard.lock().unwrap().push(notice.to_string());
        // The worker itself says this one.
        if notice.message.starts_with("probe: cannot keep up") {
            held.set(|state| state.waiting = true);
            held.wait_until(|state| !state.closed);
        }
    });
    let pipeline = Pipeline { queue_steps: 2, shutdown_timeout_ms: 100 };
    let options = Options { ranks: Some(Ranks::SINGLE), notices, ..Options::default() };
    let monitor = Monitor::start_with(Config { pipeline, ..config() }, options, vec![Box::new(probe.clone())]).unwrap();
    let tensor = monitor.register("fc.weight", 0);
    while !gate.0.0.lock().unwrap().waiting {
        one_step(&monitor, tensor);
    }
    // These wait for a worker that does not come back.
    for _ in 0..3 {
        one_step(&monitor, tensor);
    }
    let report = monitor.shutdown();
    assert!(report.balances(), "{report:?}");
    let sink = report.sinks[0].counts;
    assert_eq!(sink.accepted, report.counts.accepted, "what the worker never took counts as well: {report:?}");
    assert!(sink.abandoned >= 3 && sink.exported == 0, "{report:?}");
    let told = said.lock().unwrap().iter().filter(|text| text.contains("the worker thread did not finish")).count();
    assert_eq!(told, 1);
    // Set free afterwards, neither changes the closed counts.
    gate.set(|state| state.closed = false);
    probe.set(|state| state.closed = false);
    probe.wait_until(|state| !state.steps.is_empty());
    assert_eq!(monitor.report().sinks[0].counts, sink);
}

#[test]
fn after_the_shutdown_nothing_is_measured_and_the_books_stay_closed() {
    let probe = Probe::default();
    let (monitor, _heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    one_step(&monitor, tensor);
    let closed = monitor.shutdown();
    let data = [1.0f32];
    let view = TensorView::from_slice(&data, &[1]).unwrap();
    for _ in 0..3 {
        assert!(monitor.observe(tensor, Kind::GradReduced, MicroStep(0), &view).is_none());
        one_step(&monitor, tensor);
        assert!(!monitor.collecting());
    }
    assert!(monitor.observe(tensor, Kind::GradReduced, MicroStep(0), &view).is_none());
    let later = monitor.report();
    assert!(later.balances(), "{later:?}");
    assert_eq!((later.next_step, later.counts.offered), (closed.next_step, closed.counts.offered));
}

#[test]
fn threads_that_observe_while_the_monitor_shuts_down_leave_balanced_books() {
    for _ in 0..100 {
        let probe = Probe::default();
        let (monitor, _heard) = start(config(), &probe);
        let tensor = monitor.register("fc.weight", 0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let data = [1.0f32];
                    let view = TensorView::from_slice(&data, &[1]).unwrap();
                    for _ in 0..200 {
                        monitor.observe(tensor, Kind::GradReduced, MicroStep(0), &view);
                    }
                });
            }
            one_step(&monitor, tensor);
            monitor.shutdown();
        });
        let report = monitor.report();
        assert!(report.balances(), "{report:?}");
    }
}

#[test]
fn a_listener_that_panics_or_shuts_the_monitor_down_harms_nobody() {
    let probe = Probe::default();
    probe.set(|state| state.closed = true);
    let itself: Arc<Mutex<Option<Monitor>>> = Arc::default();
    let listener = Arc::clone(&itself);
    let notices = Notices::new(move |_notice| {
        let monitor = listener.lock().unwrap().take();
        if let Some(monitor) = monitor {
            monitor.shutdown();
        }
        panic!("a listener may do anything");
    });
    let options = Options { ranks: Some(Ranks::SINGLE), notices, ..Options::default() };
    let pipeline = Pipeline { queue_steps: 1, shutdown_timeout_ms: 50 };
    let own: Vec<Box<dyn Exporter>> = vec![Box::new(probe.clone())];
    let monitor = Monitor::start_with(Config { pipeline, ..config() }, options, own).unwrap();
    *itself.lock().unwrap() = Some(monitor.clone());
    let tensor = monitor.register("fc.weight", 0);
    monitor.observe_unsupported(tensor, Kind::GradReduced, "its layout is sparse");
    for _ in 0..20 {
        one_step(&monitor, tensor);
    }
    probe.set(|state| state.closed = false);
    let report = monitor.shutdown();
    assert!(report.balances(), "{report:?}");
}

#[test]
fn a_stalled_exporter_takes_no_time_from_the_others_at_shutdown() {
    let (stalled, healthy) = (Probe::default(), Probe::default());
    stalled.set(|state| state.closed = true);
    let options = Options { ranks: Some(Ranks::SINGLE), notices: Notices::new(|_| {}), ..Options::default() };
    let pipeline = Pipeline { queue_steps: 8, shutdown_timeout_ms: 100 };
    let own: Vec<Box<dyn Exporter>> = vec![Box::new(stalled.clone()), Box::new(healthy.clone())];
    let monitor = Monitor::start_with(Config { pipeline, ..config() }, options, own).unwrap();
    let tensor = monitor.register("fc.weight", 0);
    for _ in 0..4 {
        one_step(&monitor, tensor);
    }
    let report = monitor.shutdown();
    healthy.wait_until(|state| state.is_shut_down);
    assert_eq!((report.sinks[0].counts.abandoned, report.sinks[1].counts.exported), (4, 4));
    assert!(report.balances(), "{report:?}");
    stalled.set(|state| state.closed = false);
}

#[test]
fn dropping_the_last_clone_delivers_what_is_queued() {
    let probe = Probe::default();
    let (monitor, _heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    let clone = monitor.clone();
    one_step(&monitor, tensor);
    drop(monitor);
    one_step(&clone, tensor);
    drop(clone);
    assert_eq!(probe.steps().len(), 2);
}
