//! Exports a step's numbers to an experiment tracker, a Python object of `trainmon.integrations`.
//!
//! Called on the sink's thread, which attaches to the interpreter for each step. The delivery report contains the outcome
//! of a step with its alerts: a tracker may have no run yet, or hold steps back until it can send them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use pyo3::prelude::*;
use trainmon_agent::core::config::{Config, Mlflow, Tracker, TrackerLayers, Wandb};
use trainmon_agent::core::{Alert, AlertPhase, Kind, Rank, Reading, Statistic, StepBatch, TensorInfo};
use trainmon_agent::exporters::{DeliveryReport, ExportError, ExportFailure, Exporter};

use crate::discard_error::discard;
use crate::exit::with_python;

/// The maximum number of series that a tracker shows in acceptable time. Further ones are skipped with a warning.
const MAX_SERIES: usize = 10_000;

const NO_RUN: &str = "no run is active: steps are counted as lost until there is one";
const TOO_MANY: &str = "the step has more than 10000 series: further ones are skipped";
const TOO_MANY_HINT: &str = "list statistics in `layers`, or measure less: `targets`, `ops`";
const NO_ROOM: &str = "the script's own `log` calls end fewer rows than there are steps, and a row holds one step: the \
                       other steps are counted as lost";
const NO_ROOM_HINT: &str = "set \"wandb\": {\"commit\": true} if the script never logs with `step=`, or set `every`";
const ENDED: &str = "the interpreter is ending: the step is counted as lost";

/// Returns the trackers that a config requests. They use their packages only when there is data to send.
pub(crate) fn trackers(py: Python<'_>, config: &Config, rank: Rank) -> Vec<Box<dyn Exporter>> {
    let mut found: Vec<Box<dyn Exporter>> = Vec::new();
    let mut add = |name, wanted: &Tracker, made: PyResult<Py<PyAny>>, hint| {
        // trainmon's own modules import no optional package.
        let Ok(tracker) = made.map_err(|error| discard(py, error)) else { return };
        found.push(Box::new(TrackerExporter {
            name,
            hint,
            tracker,
            every: wanted.every,
            layers: wanted.layers.clone(),
            config: config.clone(),
            is_first: rank.0 == 0,
            report: None,
            held: VecDeque::new(),
            told: HashSet::new(),
        }));
    };
    if let Some(Wandb { tracker, commit }) = &config.wandb {
        let made = make(py, "trainmon.integrations.wandb", (&tracker.prefix, commit));
        let hint = "call wandb.init() before the training, on every rank that should log";
        add("wandb", tracker, made, hint);
    }
    if let Some(Mlflow { tracker }) = &config.mlflow {
        let made = make(py, "trainmon.integrations.mlflow", (&tracker.prefix,));
        let hint = "call mlflow.start_run() before the training, on every rank that should log";
        add("mlflow", tracker, made, hint);
    }
    found
}

fn make<'py>(py: Python<'py>, module: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyResult<Py<PyAny>> {
    Ok(py.import(module)?.getattr("Tracker")?.call1(arguments)?.unbind())
}

/// Calls a tracker. `log` and `finish` return None if no run is active, else the outcome of the oldest steps that the
/// tracker holds: the number of lost ones, then of sent ones. `alert` returns whether a run is active.
struct TrackerExporter {
    name: &'static str,
    /// The hint for the case that no run is active.
    hint: &'static str,
    tracker: Py<PyAny>,
    every: u64,
    layers: TrackerLayers,
    config: Config,
    /// Only rank 0 is expected to have a run.
    is_first: bool,
    report: Option<Arc<dyn DeliveryReport>>,
    /// The records of the steps that the tracker holds, oldest first.
    held: VecDeque<u64>,
    /// The messages that were logged; each is logged once.
    told: HashSet<String>,
}

impl TrackerExporter {
    fn warn(&mut self, message: &str, hint: &str) {
        if let Some(report) = self.report.as_ref().filter(|_| self.told.len() < 16 && !self.told.contains(message)) {
            self.told.insert(message.to_owned());
            report.warn(message, hint);
        }
    }

    fn warn_of(&mut self, lost: &Lost) {
        match lost {
            Lost::NoRun if self.is_first => self.warn(NO_RUN, self.hint),
            Lost::NoRun => {}
            Lost::Ended => self.warn(ENDED, "close the watch before the interpreter ends"),
            Lost::Raised(error) => {
                let message = format!("{error}; losses are counted, training continues");
                self.warn(&message, "the tracker reported this: check its settings and log");
            }
        }
    }

    /// Reports the outcome of the oldest held steps: first `lost` ones, then `sent` ones.
    fn settle(&mut self, (lost, sent): (usize, usize)) {
        let mut records = |steps: usize| self.held.drain(..steps.min(self.held.len())).sum::<u64>();
        let (failed, exported) = (records(lost), records(sent));
        if let Some(report) = &self.report {
            report.failed(failed);
            report.exported(exported);
        }
        if lost > 0 {
            self.warn(NO_ROOM, NO_ROOM_HINT);
        }
    }

    fn settle_rest(&mut self) {
        let records = self.held.drain(..).sum();
        if let Some(report) = &self.report {
            report.failed(records);
        }
    }

    /// Returns the numbers of a step by name.
    fn numbers(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Vec<(String, f64)> {
        let cost = batch.cost.in_step().as_secs_f64();
        let facts = [
            ("loss", batch.loss),
            ("learning_rate", batch.learning_rate),
            ("grad_norm", batch.grad_norm()),
            ("overhead_seconds", Some(cost)),
            ("overhead_ratio", batch.duration.map(|step| cost / step.as_secs_f64())),
        ];
        let mut numbers: Vec<(String, f64)> =
            facts.iter().filter_map(|&(name, value)| Some((name.to_owned(), value?))).collect();
        let is_taken = |name: &str| name == "step" || facts.iter().any(|(fact, _)| *fact == name);
        for record in &batch.records {
            let (Some(reading), Some(info)) = (&record.reading, names.get(record.tensor.index())) else { continue };
            if record.kind == Kind::Scalar {
                let name = if is_taken(&info.name) { format!("scalar/{}", info.name) } else { info.name.to_string() };
                numbers.extend(reading.values().first().map(|&value| (name, value)));
            } else if self.layers.is_on() {
                let chunk = if info.vpp_stage > 0 { format!("vp{}:", info.vpp_stage) } else { String::new() };
                let micro =
                    if record.micro_step.0 > 0 { format!(":micro{}", record.micro_step) } else { String::new() };
                let of = format!("{}/{chunk}{}{micro}", record.kind, info.name);
                let ops = batch.ops_of(&self.config, record.kind);
                let wanted = ops.iter().copied().filter(|&it| self.layers.contains(it));
                numbers.extend(wanted.filter_map(|it| Some((format!("{of}/{it}"), statistic_of(reading, it)?))));
                let columns = record.kind.value_columns().iter().zip(reading.values());
                numbers.extend(columns.map(|(column, &value)| (format!("{of}/{column}"), value)));
            }
        }
        if numbers.len() > MAX_SERIES {
            numbers.truncate(MAX_SERIES);
            self.warn(TOO_MANY, TOO_MANY_HINT);
        }
        numbers
    }
}

/// The reason why a step or an alert did not arrive.
enum Lost {
    NoRun,
    Ended,
    Raised(String),
}

/// Returns the outcome of a call of the tracker.
fn outcome<T>(called: Option<Result<Option<T>, String>>) -> Result<T, Lost> {
    called.ok_or(Lost::Ended)?.map_err(Lost::Raised)?.ok_or(Lost::NoRun)
}

/// Returns the first line of an exception's message.
fn first_line(py: Python<'_>, error: PyErr) -> String {
    let text = error.to_string();
    discard(py, error);
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

/// Returns a statistic as a number for a chart; `None` for checksums.
fn statistic_of(reading: &Reading, statistic: Statistic) -> Option<f64> {
    let stats = reading.tensor()?;
    match statistic {
        Statistic::Crc32 | Statistic::Xor64 => None,
        Statistic::Id => stats.id().map(trainmon_agent::core::Scalar::as_f64),
        _ => Some(stats.value(statistic)),
    }
}

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Exporter for TrackerExporter {
    fn name(&self) -> &'static str {
        self.name
    }

    fn reports_deliveries(&mut self, report: &Arc<dyn DeliveryReport>) -> bool {
        self.report = Some(Arc::clone(report));
        true
    }

    fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
        let records = batch.records.len() as u64;
        if !batch.step.0.is_multiple_of(self.every) {
            // Steps that `every` skips count as exported.
            if let Some(report) = &self.report {
                report.exported(records);
            }
            return Ok(());
        }
        let numbers = self.numbers(names, batch);
        let tracker = &self.tracker;
        let (step, time) = (batch.step.0, unix_seconds(batch.time));
        let called = with_python(|py| {
            let answer = tracker.bind(py).call_method1("log", (step, time, numbers));
            answer.and_then(|answer| answer.extract::<Option<(usize, usize)>>()).map_err(|error| first_line(py, error))
        });
        match outcome(called) {
            Ok(fate) => {
                self.held.push_back(records);
                self.settle(fate);
            }
            Err(lost) => {
                if let Some(report) = &self.report {
                    report.failed(records);
                }
                self.warn_of(&lost);
            }
        }
        Ok(())
    }

    fn alert(&mut self, alert: &Alert) -> Result<(), ExportError> {
        let begins = alert.phase == AlertPhase::Begins;
        let title = format!("{} {} at step {}", alert.rule, if begins { "begins" } else { "ends" }, alert.step);
        let tracker = &self.tracker;
        let arguments = (alert.step.0, alert.rule.to_string(), title, &alert.message, alert.severity.name());
        let called = with_python(|py| {
            let answer = tracker.bind(py).call_method1("alert", arguments);
            let is_there = answer.and_then(|answer| answer.extract::<bool>());
            is_there.map(|is_there| is_there.then_some(())).map_err(|error| first_line(py, error))
        });
        let outcome = outcome(called);
        if let Some(report) = &self.report {
            if outcome.is_ok() { report.alerts_delivered(1) } else { report.alerts_lost(1) }
        }
        if let Err(lost) = &outcome {
            self.warn_of(lost);
        }
        Ok(())
    }

    fn shutdown(&mut self, _deadline: Instant) -> Result<(), ExportError> {
        let tracker = &self.tracker;
        let called = with_python(|py| {
            let answer = tracker.bind(py).call_method0("finish");
            answer.and_then(|answer| answer.extract::<(usize, usize)>()).map_err(|error| first_line(py, error))
        });
        match outcome(called.map(|answer| answer.map(Some))) {
            Ok(fate) => self.settle(fate),
            Err(lost) => self.warn_of(&lost),
        }
        // The remaining steps were not sent.
        self.settle_rest();
        Ok(())
    }

    fn shares_a_lock(&self) -> bool {
        true
    }

    fn locations(&self) -> Vec<String> {
        vec![format!("the active {} run", self.name)]
    }
}
