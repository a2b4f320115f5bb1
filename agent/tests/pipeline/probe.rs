//! An exporter that tells what it got, and a monitor with it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use trainmon_agent::core::config::Config;
use trainmon_agent::core::{Kind, MicroStep, StepBatch, TensorInfo, TensorView};
use trainmon_agent::exporters::{ExportError, ExportFailure, Exporter};
use trainmon_agent::{Monitor, Notices, Options, Ranks, StepFacts};

/// An exporter that waits at a gate, fails on request and remembers what it got.
#[derive(Clone, Default)]
pub(crate) struct Probe(pub(crate) Arc<(Mutex<ProbeState>, Condvar)>);

#[derive(Default)]
pub(crate) struct ProbeState {
    pub(crate) closed: bool,
    pub(crate) waiting: bool,
    pub(crate) is_shut_down: bool,
    pub(crate) mood: Mood,
    pub(crate) steps: Vec<(u64, usize)>,
    /// Of the last batch's records.
    pub(crate) micro_steps: Vec<u32>,
    /// Ours and the framework's.
    pub(crate) norms: Vec<(Option<f64>, Option<f64>)>,
    pub(crate) losses: Vec<Option<f64>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Work,
    Fail,
    Overflow,
    Panic,
}

impl Probe {
    pub(crate) fn set(&self, change: impl FnOnce(&mut ProbeState)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    pub(crate) fn wait_until(&self, condition: impl Fn(&ProbeState) -> bool) {
        let mut state = self.0.0.lock().unwrap();
        while !condition(&state) {
            state = self.0.1.wait(state).unwrap();
        }
    }

    pub(crate) fn steps(&self) -> Vec<(u64, usize)> {
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

    fn locations(&self) -> Vec<String> {
        vec!["a test".to_owned()]
    }
}

pub(crate) struct ReceivedMessages(pub(crate) Arc<Mutex<Vec<String>>>);

impl ReceivedMessages {
    pub(crate) fn containing(&self, text: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|message| message.contains(text)).count()
    }
}

pub(crate) fn start(config: Config, probe: &Probe) -> (Monitor, ReceivedMessages) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&heard);
    let notices = Notices::new(move |notice| listener.lock().unwrap().push(notice.to_string()));
    let options = Options { ranks: Some(Ranks::SINGLE), notices, ..Options::default() };
    (Monitor::start_with(config, options, vec![Box::new(probe.clone())]).unwrap(), ReceivedMessages(heard))
}

pub(crate) fn one_step(monitor: &Monitor, tensor: trainmon_agent::core::TensorId) {
    let data = [1.0f32, -2.0];
    let view = TensorView::from_slice(&data, &[2]).unwrap();
    monitor.observe(tensor, Kind::GradReduced, MicroStep(0), &view);
    monitor.end_step(StepFacts::default());
}
