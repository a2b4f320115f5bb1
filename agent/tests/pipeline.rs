//! The pipeline with exporters that stall and fail on cue: nothing blocks, every record has a fate.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod common;

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use common::config;
use trainmon_agent::core::config::{Config, Pipeline, Window};
use trainmon_agent::core::{GradNorm, Kind, MicroStep, Record, Step, StepBatch, TensorInfo, TensorStats, TensorView};
use trainmon_agent::exporters::{ExportError, ExportFailure, Exporter};
use trainmon_agent::{LateNumber, Monitor, Notices, Options, Ranks, StepFacts};

/// An exporter that waits at a gate, fails on request and remembers what it got.
#[derive(Clone, Default)]
struct Probe(Arc<(Mutex<ProbeState>, Condvar)>);

#[derive(Default)]
struct ProbeState {
    closed: bool,
    waiting: bool,
    is_shut_down: bool,
    mood: Mood,
    steps: Vec<(u64, usize)>,
    /// Of the last batch's records.
    micro_steps: Vec<u32>,
    /// Ours and the framework's.
    norms: Vec<(Option<f64>, Option<f64>)>,
    losses: Vec<Option<f64>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mood {
    #[default]
    Work,
    Fail,
    Overflow,
    Panic,
}

impl Probe {
    fn set(&self, change: impl FnOnce(&mut ProbeState)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    fn wait_until(&self, condition: impl Fn(&ProbeState) -> bool) {
        let mut state = self.0.0.lock().unwrap();
        while !condition(&state) {
            state = self.0.1.wait(state).unwrap();
        }
    }

    fn steps(&self) -> Vec<(u64, usize)> {
        self.0.0.lock().unwrap().steps.clone()
    }
}

impl Exporter for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn export(&mut self, _names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
        self.set(|state| state.waiting = true);
        self.wait_until(|state| !state.closed);
        let mut state = self.0.0.lock().unwrap();
        state.waiting = false;
        let mood = state.mood;
        if mood == Mood::Work {
            state.steps.push((batch.step.0, batch.records.len()));
            state.micro_steps = batch.records.iter().map(|record| record.micro_step.0).collect();
            state.norms.push((batch.grad_norm(), batch.framework_grad_norm));
            state.losses.push(batch.loss);
        }
        drop(state);
        self.0.1.notify_all();
        assert!(mood != Mood::Panic, "the probe was told to panic");
        let source = match mood {
            Mood::Fail => ExportError::Write { path: "probe".into(), source: std::io::ErrorKind::StorageFull.into() },
            Mood::Overflow => ExportError::TooManyTags { max: 1, left_out: 2 },
            Mood::Work | Mood::Panic => return Ok(()),
        };
        Err(ExportFailure { lost_records: batch.records.len() as u64, source })
    }

    fn shutdown(&mut self, _deadline: Instant) -> Result<(), ExportError> {
        self.set(|state| state.is_shut_down = true);
        Ok(())
    }

    fn whereabouts(&self) -> Vec<String> {
        vec!["a test".to_owned()]
    }
}

struct ReceivedMessages(Arc<Mutex<Vec<String>>>);

impl ReceivedMessages {
    fn containing(&self, text: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|message| message.contains(text)).count()
    }
}

fn start(config: Config, probe: &Probe) -> (Monitor, ReceivedMessages) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&heard);
    let notices = Notices::new(move |notice| listener.lock().unwrap().push(notice.to_string()));
    let options = Options { ranks: Some(Ranks::SINGLE), notices, ..Options::default() };
    (Monitor::start_with(config, options, vec![Box::new(probe.clone())]).unwrap(), ReceivedMessages(heard))
}

fn one_step(monitor: &Monitor, tensor: trainmon_agent::core::TensorId) {
    let data = [1.0f32, -2.0];
    let view = TensorView::from_slice(&data, &[2]).unwrap();
    monitor.observe(tensor, Kind::GradReduced, MicroStep(0), &view);
    monitor.end_step(StepFacts::default());
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
    assert_eq!((report.books.observed, report.lost(), report.next_step), (50, 0, Step(50)));
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
    assert_eq!(report.books.observed, 100);
    assert!(report.lost() >= 90, "{report:?}");
    assert_eq!(report.sinks[0].books.exported + report.lost(), 100);
}

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
    assert_eq!(report.sinks[0].books.abandoned, 4);
    assert_eq!(heard.containing("4 records were still queued"), 1);
    // Set free afterwards, it must not change the closed books.
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
    let sink = report.sinks[0].books;
    assert_eq!(sink.accepted, report.books.accepted, "what the worker never took counts as well: {report:?}");
    assert!(sink.abandoned >= 3 && sink.exported == 0, "{report:?}");
    let told = said.lock().unwrap().iter().filter(|text| text.contains("the worker thread did not finish")).count();
    assert_eq!(told, 1);
    // Set free afterwards, neither changes the closed books.
    gate.set(|state| state.closed = false);
    probe.set(|state| state.closed = false);
    probe.wait_until(|state| !state.steps.is_empty());
    assert_eq!(monitor.report().sinks[0].books, sink);
}

#[test]
fn a_failing_exporter_speaks_once_and_again_when_it_recovers() {
    let probe = Probe::default();
    let (monitor, heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    probe.set(|state| state.mood = Mood::Fail);
    for failed in 1..=3 {
        one_step(&monitor, tensor);
        wait_for(|| monitor.report().sinks[0].books.failed == failed);
    }
    // Another kind of failure is told too, once, whatever order they come in.
    for (mood, failed) in [(Mood::Overflow, 4), (Mood::Fail, 5), (Mood::Overflow, 6)] {
        probe.set(|state| state.mood = mood);
        one_step(&monitor, tensor);
        wait_for(|| monitor.report().sinks[0].books.failed == failed);
    }
    probe.set(|state| state.mood = Mood::Work);
    one_step(&monitor, tensor);
    let report = monitor.shutdown();
    assert_eq!((report.sinks[0].books.failed, report.sinks[0].books.exported), (6, 1));
    assert!(report.balances());
    assert_eq!((heard.containing("cannot write `probe`"), heard.containing("works again; 6 records")), (1, 1));
    assert_eq!(heard.containing("2 tags are beyond the most of 1"), 1);
}

#[test]
fn an_exporter_that_panics_loses_its_batch_only() {
    let probe = Probe::default();
    let (monitor, heard) = start(config(), &probe);
    let tensor = monitor.register("fc.weight", 0);
    probe.set(|state| state.mood = Mood::Panic);
    one_step(&monitor, tensor);
    wait_for(|| monitor.report().sinks[0].books.failed == 1);
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
    let window = Window { start_step: 1, stop_step: None, step_interval: 2, collect_times: 2 };
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
    assert_eq!((report.books.observed, report.books.not_sampled, report.books.offered), (8, 6, 2));
    assert_eq!(report.cost.bytes_read, 16, "a step outside the window reads no tensor");
}

#[test]
fn a_rank_that_is_not_listed_measures_nothing() {
    let probe = Probe::default();
    let (monitor, _heard) = start(Config { ranks: vec![3], ..config() }, &probe);
    let tensor = monitor.register("fc.weight", 0);
    one_step(&monitor, tensor);
    let report = monitor.shutdown();
    assert_eq!((report.books.not_sampled, report.books.offered, report.cost.bytes_read), (1, 0, 0));
}

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
    let hold = monitor.hold();
    monitor.end_step(StepFacts::default());
    one_step(&monitor, tensor);
    assert!(probe.steps().is_empty());
    hold.record(late);
    hold.record(late);
    drop(hold);
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
    assert_eq!(report.books.not_sampled, 2 + 3);
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
    let hold = monitor.hold();
    monitor.end_step(StepFacts { grad_norm: GradNorm::Unknown, ..StepFacts::default() });
    hold.set_grad_norm(3.0);
    hold.set_framework_grad_norm(6.0);
    drop(hold);
    // Told before the end of the step, which then says that it does not know.
    let hold = monitor.hold();
    hold.set_grad_norm(4.0);
    monitor.end_step(StepFacts { grad_norm: GradNorm::Unknown, ..StepFacts::default() });
    drop(hold);
    // A skipped step takes its norms with it.
    let hold = monitor.hold();
    hold.set_grad_norm(99.0);
    hold.set_framework_grad_norm(99.0);
    monitor.skip_step();
    drop(hold);
    one_step(&monitor, tensor);
    // Far too late: the batch has left.
    let hold = monitor.hold();
    for _ in 0..6 {
        monitor.end_step(StepFacts { grad_norm: GradNorm::Unknown, ..StepFacts::default() });
    }
    hold.set_grad_norm(5.0);
    drop(hold);
    monitor.shutdown();
    let norms = probe.0.0.lock().unwrap().norms.clone();
    let expected = [(Some(2.0), Some(2.0)), (Some(3.0), Some(6.0)), (Some(4.0), None), (Some(5.0f64.sqrt()), None)];
    assert_eq!(norms[..4], expected);
    assert_eq!(norms[4..], [(None, None); 6]);
    assert_eq!(heard.containing("parts from the framework's by more than 1 %: step 1: ours 3"), 1);
}

#[test]
fn the_loss_comes_with_the_step_or_late() {
    let probe = Probe::default();
    let pipeline = Pipeline { queue_steps: 20, ..Pipeline::default() };
    let (monitor, _heard) = start(Config { pipeline, ..config() }, &probe);
    let of = |loss| StepFacts { loss: Some(loss), ..StepFacts::default() };
    monitor.end_step(of(1.0));
    // Late, when a later step has a loss of its own already.
    let hold = monitor.hold();
    monitor.end_step(StepFacts::default());
    monitor.end_step(of(3.0));
    hold.set_loss(2.0);
    drop(hold);
    // Told before the end of the step: it stands, whatever the step's end says.
    let hold = monitor.hold();
    hold.set_loss(4.0);
    drop(hold);
    monitor.end_step(of(99.0));
    // A skipped step takes its loss with it.
    let hold = monitor.hold();
    hold.set_loss(99.0);
    monitor.skip_step();
    drop(hold);
    monitor.end_step(StepFacts::default());
    // Far too late: the batch has left.
    let hold = monitor.hold();
    for _ in 0..6 {
        monitor.end_step(StepFacts::default());
    }
    hold.set_loss(99.0);
    drop(hold);
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
    let hold = monitor.hold();
    hold.expect(LateNumber::GradNorm);
    end_steps(&monitor, 12);
    assert!(hold.set_grad_norm(5.0), "three quarters of the queue");
    drop(hold);
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
        let hold = monitor.hold();
        hold.expect(number);
        hold
    };
    let norms = [(); 2].map(|()| {
        let hold = announced(LateNumber::GradNorm);
        end_steps(&monitor, 1);
        hold
    });
    end_steps(&monitor, 30);
    for hold in norms {
        assert!(!hold.set_grad_norm(7.0), "it has left");
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
    let hold = monitor.hold();
    for _ in 0..10 {
        one_step(&monitor, tensor);
    }
    hold.record(Record { tensor, kind: Kind::GradReduced, micro_step: MicroStep(0), reading: None });
    drop(hold);
    let report = monitor.shutdown();
    assert_eq!(probe.steps(), (0..10).map(|step| (step, 1)).collect::<Vec<_>>());
    assert_eq!(report.books.not_sampled, 1);
    assert!(report.balances());
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
    assert_eq!((report.books.offered, report.books.not_sampled), (1, 1));
    assert!(report.balances());
    // After the shutdown nothing is measured any more, and nothing breaks.
    one_step(&monitor, tensor);
    assert!(monitor.report().balances());
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
    assert_eq!((later.next_step, later.books.offered), (closed.next_step, closed.books.offered));
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
    assert_eq!((report.sinks[0].books.abandoned, report.sinks[1].books.exported), (4, 4));
    assert!(report.balances(), "{report:?}");
    stalled.set(|state| state.closed = false);
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
    assert_eq!((report.books.observed, report.books.not_sampled), (MOST + 10, 10));
    assert!(report.balances());
    assert_eq!(heard.containing("does the loop end its steps"), 1);
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
    assert_eq!((report.books.observed, report.books.not_sampled, report.next_step), (2, 1, Step(1)));
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
    assert_eq!((report.books.observed, report.books.not_sampled), (5, 5));
    assert_eq!(heard.containing("`embedding.weight` is not measured: its layout is sparse"), 1);
}

/// Waits for a condition, not for a time; a broken monitor is caught by the test runner's own limit.
fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
