//! The public face: show it tensors, end steps, shut it down. `start` opens it.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use trainmon_core::config::Config;
use trainmon_core::{Kind, MicroStep, Phase, Reading, Record, Step, TensorId, TensorInfo, TensorView};
use trainmon_stats::{Request, measure};

use crate::cost::CostSummary;
use crate::hold::Hold;
use crate::inner::{FLAG, Inner, Parts};
use crate::rank::Ranks;
use crate::report::Report;

/// What the caller knows about a step and the monitor cannot see.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepFacts {
    /// The training loss.
    pub loss: Option<f64>,
    /// The learning rate the step was made with.
    pub learning_rate: Option<f64>,
}

/// A running monitor. Cheap to clone; every clone is the same monitor.
///
/// No method panics, blocks on I/O or changes what it is shown. Methods may be called from any thread. Dropping the
/// last clone shuts the monitor down within its deadline; [`Monitor::shutdown`] does so at a moment of your choice and
/// tells how it went.
#[derive(Clone)]
pub struct Monitor {
    inner: Arc<Inner>,
}

impl Monitor {
    pub(crate) fn assemble(parts: Parts) -> Self {
        Self { inner: Arc::new(Inner::new(parts)) }
    }

    /// The config the monitor runs with.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// This process's place in the job.
    pub fn ranks(&self) -> Ranks {
        self.inner.ranks
    }

    /// Where each exporter's output is, by exporter.
    pub fn whereabouts(&self) -> Vec<(&'static str, Vec<String>)> {
        self.inner.sinks.iter().map(|(shared, places)| (shared.name, places.clone())).collect()
    }

    /// Gives a tensor its id. Call once per tensor, when the hook is installed.
    pub fn register(&self, name: &str, vpp_stage: u32) -> TensorId {
        self.inner.tensors.register(TensorInfo { name: name.into(), vpp_stage })
    }

    /// The step in progress.
    pub fn step(&self) -> Step {
        Step(self.inner.step.load(FLAG))
    }

    /// Whether the step in progress is measured on this rank. A front that asks first can skip its own work.
    pub fn collecting(&self) -> bool {
        self.inner.collecting.load(FLAG) && !self.inner.fork.is_child()
    }

    /// What is measured of a kind; `None` if the config does not ask for it.
    pub fn request(&self, kind: Kind) -> Option<Request> {
        self.inner.requests[kind as usize]
    }

    /// Measures a tensor in place and records it. Returns the reading, for a front that can use it twice.
    ///
    /// `None` if the kind is not configured or the step is not measured. Cost: one pass over the tensor, no allocation
    /// once the step's record buffer has its size.
    pub fn observe(
        &self,
        tensor: TensorId,
        kind: Kind,
        micro_step: MicroStep,
        view: &TensorView<'_>,
    ) -> Option<Reading> {
        let request = self.request(kind)?;
        self.inner.ledger.observe(1);
        if !self.collecting() {
            self.inner.ledger.skip(1);
            return None;
        }
        let start = Instant::now();
        let reading = measure(view, request);
        let bytes = (view.elements() * view.dtype().size()) as u64;
        let record = Record { tensor, kind, micro_step, reading: Some(reading) };
        self.inner.recorder().push(record, Phase::Measure, start.elapsed(), bytes);
        Some(reading)
    }

    /// Records that a hook was given no tensor where it expected one (an output without gradient).
    pub fn observe_missing(&self, tensor: TensorId, kind: Kind, micro_step: MicroStep) {
        if self.request(kind).is_some() {
            self.record(Record { tensor, kind, micro_step, reading: None }, Duration::ZERO, 0);
        }
    }

    /// Counts a tensor that cannot be measured (sparse, quantised, without memory) and says why, once per reason.
    pub fn observe_unsupported(&self, tensor: TensorId, kind: Kind, why: &str) {
        if self.request(kind).is_none() {
            return;
        }
        self.inner.ledger.observe(1);
        self.inner.ledger.skip(1);
        let mut told = self.inner.unsupported_told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.iter().any(|known| known == why) {
            return;
        }
        told.push(why.to_owned());
        drop(told);
        let name = self.inner.tensors.get(tensor).map_or_else(|| "?".to_owned(), |info| info.name.to_string());
        self.inner.voice.warn(format!("{kind} of `{name}` is not measured: {why}"), None);
    }

    /// Records a reading made elsewhere: derived from another, or computed by the front. `time` is what it cost the
    /// training thread, `bytes_read` the memory it read.
    pub fn record(&self, record: Record, time: Duration, bytes_read: u64) {
        self.inner.ledger.observe(1);
        if self.collecting() {
            self.inner.recorder().push(record, Phase::Measure, time, bytes_read);
        } else {
            self.inner.ledger.skip(1);
        }
    }

    /// Adds time the training thread spent for the monitor outside of [`Monitor::observe`].
    pub fn add_cost(&self, phase: Phase, time: Duration) {
        self.inner.recorder().add_cost(phase, time, 0);
    }

    /// Keeps the batch of the step in progress open for readings that arrive after its end.
    pub fn hold(&self) -> Hold {
        let recorder = self.inner.recorder();
        let (step, count) = (recorder.clock.step(), recorder.holds());
        Hold::new(Arc::clone(&self.inner), step, count)
    }

    /// Ends the step: closes its batch, hands it over, and decides whether the next step is measured.
    ///
    /// Never waits: if the queue is full the batch is dropped and counted.
    pub fn end_step(&self, facts: StepFacts) {
        if self.inner.fork.is_child() {
            return;
        }
        self.guard("end_step", || {
            let start = Instant::now();
            let mut recorder = self.inner.recorder();
            recorder.close(self.inner.ledger.snapshot(), facts.loss, facts.learning_rate);
            self.inner.step.store(recorder.clock.step().0, FLAG);
            self.inner.collecting.store(recorder.clock.collecting(), FLAG);
            self.inner.send(&mut recorder, false);
            // The batch is gone: its own handing over is booked on the next one.
            recorder.add_cost(Phase::Offer, start.elapsed(), 0);
        });
    }

    /// Runs a hook so that nothing it does reaches the host. A hook that panics is disabled and says so once; `None`
    /// then and from then on.
    pub fn guard<R>(&self, hook: &'static str, body: impl FnOnce() -> R) -> Option<R> {
        self.inner.guard.run(hook, body)
    }

    /// What the monitor cost so far.
    pub fn cost(&self) -> CostSummary {
        self.inner.costs.summary()
    }

    /// The account so far; final once the monitor is shut down.
    pub fn report(&self) -> Report {
        self.inner.report()
    }

    /// Delivers what is queued, within the configured deadline, and closes every exporter. Later calls only report.
    pub fn shutdown(&self) -> Report {
        self.inner.shutdown();
        self.inner.report()
    }
}
