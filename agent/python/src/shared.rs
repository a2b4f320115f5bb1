//! What a monitor for Python holds, and the one way a tensor gets measured.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pyo3::prelude::*;
use trainmon_agent::Monitor;
use trainmon_agent::core::config::{Config, Signal};
use trainmon_agent::core::{Kind, Phase, Reading, Statistic, StatisticSet, TensorId, TensorStats};
use trainmon_agent::front::{Change, Label};
use trainmon_agent::stats::{Request, fingerprints, measure, measure_all, sign_agreement};

use crate::copies::Copies;
use crate::latest_readings::LatestReadings;
use crate::reading_cache::{Contents, Family, Known};
use crate::scaled::Factor;
use crate::tensor::{HostTensor, Unreadable};

/// Shared by the Python object and the interpreter's end.
pub(crate) struct Shared {
    pub(crate) monitor: Monitor,
    known: Known,
    copies: Copies,
    pub(crate) latest: LatestReadings,
    /// The statistics since `set_ops`, if it was called, and the version of the plan then: a later plan outranks them.
    live_ops: Mutex<Option<(u64, Vec<Statistic>)>>,
}

impl Shared {
    pub(crate) fn new(monitor: Monitor) -> Self {
        Self {
            monitor,
            known: Known::default(),
            copies: Copies::default(),
            latest: LatestReadings::default(),
            live_ops: Mutex::default(),
        }
    }

    /// The statistics measured now of this kind; none where it is not measured.
    pub(crate) fn statistics_of(&self, kind: Kind) -> Vec<Statistic> {
        if self.monitor.request(kind).is_none() {
            return Vec::new();
        }
        let planned = || self.config_now().signal(kind).map(|signal| signal.ops.clone());
        self.ops_since_set().or_else(planned).unwrap_or_default()
    }

    /// The config with what live control made of it.
    fn config_now(&self) -> Config {
        self.monitor.config().with_plan(&self.monitor.plan())
    }

    /// What `set_ops` asked for, unless live control has spoken since.
    fn ops_since_set(&self) -> Option<Vec<Statistic>> {
        let version = self.monitor.plan_version();
        self.live_ops().as_ref().filter(|(of, _)| *of == version).map(|(_, ops)| ops.clone())
    }

    /// The statistics measured now, of any kind.
    pub(crate) fn statistics(&self) -> Vec<Statistic> {
        if let Some(ops) = self.ops_since_set() {
            return ops;
        }
        let config = self.config_now();
        let mut all = Vec::new();
        for signal in signals(&config) {
            let new: Vec<_> = signal.ops.iter().copied().filter(|it| !all.contains(it)).collect();
            all.extend(new);
        }
        all
    }

    /// Measures other statistics from now on. Unknown names are warned of and left out.
    pub(crate) fn set_ops(&self, names: &[String]) -> Vec<Statistic> {
        let mut known = Vec::with_capacity(names.len());
        for name in names {
            match Statistic::from_name(name) {
                Some(statistic) => known.push(statistic),
                // Always written.
                None if name == "shape" || name == "dtype" => {}
                None => self.monitor.warn(
                    format!("op `{name}`: unknown, left out"),
                    Some(format!("expected some of {}", Statistic::ALL.map(Statistic::name).join(", "))),
                ),
            }
        }
        let ops = self.monitor.set_ops(&known);
        *self.live_ops() = Some((self.monitor.plan_version(), ops.clone()));
        ops
    }

    fn live_ops(&self) -> MutexGuard<'_, Option<(u64, Vec<Statistic>)>> {
        self.live_ops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The magnitude below which an element counts as zero.
    pub(crate) fn eps(&self) -> f64 {
        let config = self.config_now();
        signals(&config).next().map_or(0.0, |signal| signal.eps)
    }

    /// Measures a tensor, meant times `factor`, and records it; gives its norm.
    pub(crate) fn observe(&self, label: Label, tensor: &Bound<'_, PyAny>, factor: f64) -> Option<f64> {
        let start = Instant::now();
        self.monitor.request_now(label)?;
        let factor = self.factor(label, factor)?;
        let tensor = self.describe(label, tensor)?;
        let (reading, request) = self.read(label, &tensor, factor, start)?;
        norm(request, factor.scale(reading))
    }

    /// Measures tensors side by side and records them. One that cannot be measured is counted and told; the others are.
    pub(crate) fn observe_all(&self, shown: &[(Label, Bound<'_, PyAny>)]) {
        let start = Instant::now();
        let (mut labels, mut tensors) = (Vec::with_capacity(shown.len()), Vec::with_capacity(shown.len()));
        for (label, tensor) in shown {
            let Some(tensor) = self.monitor.request_now(*label).and_then(|_| self.describe(*label, tensor)) else {
                continue;
            };
            if self.told(*label, tensor.check()).is_some() {
                labels.push(*label);
                tensors.push(tensor);
            }
        }
        let Some(readings) = self.read_all(&labels, &tensors) else { return };
        // The first bears the time of all.
        let mut start = start;
        for ((label, tensor), reading) in labels.into_iter().zip(&tensors).zip(readings) {
            self.record(label, reading, start, tensor.layout.bytes());
            start = Instant::now();
        }
    }

    /// The fingerprints of host tensors' bytes; `None` for one that cannot be read.
    pub(crate) fn fingerprints(&self, shown: &[Bound<'_, PyAny>]) -> Vec<Option<u64>> {
        let start = Instant::now();
        let mut found = vec![None; shown.len()];
        let described = shown.iter().enumerate().filter_map(|(place, tensor)| {
            let tensor = HostTensor::describe(tensor).ok()?;
            tensor.check().ok()?;
            Some((place, tensor))
        });
        let (places, tensors): (Vec<usize>, Vec<_>) = described.unzip();
        if let Ok(Some(read)) = HostTensor::read_all(&tensors, fingerprints) {
            for (place, fingerprint) in places.into_iter().zip(read) {
                found[place] = Some(fingerprint);
            }
        }
        self.monitor.add_cost(Phase::Measure, start.elapsed());
        found
    }

    /// As [`read`](Self::read), many tensors.
    fn read_all(&self, labels: &[Label], tensors: &[HostTensor<'_, '_>]) -> Option<Vec<TensorStats>> {
        loop {
            let requests = || labels.iter().map(|label| self.monitor.request(label.kind)).collect::<Option<Vec<_>>>();
            let asked = requests()?;
            let readings = HostTensor::read_all(tensors, |views| {
                let asked: Vec<_> = views.iter().copied().zip(asked.iter().copied()).collect();
                measure_all(&asked)
            });
            let readings = self.told(*labels.first()?, readings)??;
            if requests()? == asked {
                return Some(readings);
            }
        }
    }

    /// As [`observe`](Self::observe); takes the known reading if nobody wrote since.
    pub(crate) fn observe_once(&self, label: Label, tensor: &Bound<'_, PyAny>, factor: f64) -> Option<f64> {
        let Some(family) = Family::of(label.kind) else { return self.observe(label, tensor, factor) };
        let start = Instant::now();
        let request = self.monitor.request_now(label)?;
        let factor = self.factor(label, factor)?;
        let tensor = self.describe(label, tensor)?;
        let contents = Contents::of(&tensor, family, self.monitor.step());
        let asked = factor.request(request);
        if let Some(reading) = self.known.recall(label.tensor, family, contents.as_ref(), asked) {
            self.record(label, factor.scale(reading), start, 0);
            return norm(request, factor.scale(reading));
        }
        self.known.forget(label.tensor, family);
        let (reading, answered) = self.read(label, &tensor, factor, start)?;
        if answered == request {
            self.known.remember(label.tensor, family, contents, asked, reading);
        }
        norm(answered, factor.scale(reading))
    }

    /// Records the reading another label of this kind got in this step; false if there is none.
    pub(crate) fn record_again(&self, label: Label, of: TensorId) -> bool {
        let start = Instant::now();
        let Some(reading) = self.latest.in_step(label.kind, of, self.monitor.step()) else { return false };
        self.record(label, reading, start, 0);
        true
    }

    /// Records numbers computed elsewhere.
    pub(crate) fn record_value(&self, label: Label, reading: Reading) {
        if self.monitor.request(label.kind).is_some() {
            self.record(label, reading, Instant::now(), 0);
        }
    }

    fn record(&self, label: Label, reading: impl Into<Reading>, start: Instant, bytes_read: usize) {
        let reading = reading.into();
        let statistics = self.monitor.request(label.kind).map_or(StatisticSet::EMPTY, |request| request.statistics);
        self.latest.remember(self.monitor.step(), label, statistics, reading);
        self.monitor.record(label.with(reading), start.elapsed(), bytes_read as u64);
    }

    /// As [`Monitor::retract`]; a reading that is taken back is nobody's latest either.
    pub(crate) fn retract(&self, kind: Kind, tensors: &[TensorId], keep_last: bool) {
        if !keep_last {
            self.latest.forget(kind, tensors);
        }
        self.monitor.retract(kind, tensors, keep_last);
    }

    /// How far two tensors agree in sign; the time is booked, the outcome left to the caller.
    pub(crate) fn sign_agreement(&self, gradient: &Bound<'_, PyAny>, moment: &Bound<'_, PyAny>) -> Option<f64> {
        let start = Instant::now();
        let gradient = HostTensor::describe(gradient).ok()?;
        let moment = HostTensor::describe(moment).ok()?;
        let agreement = gradient.read_with(&moment, sign_agreement).ok().flatten();
        self.monitor.add_cost(Phase::Measure, start.elapsed());
        agreement
    }

    /// Keeps a copy of a parameter, if updates are measured in this step.
    pub(crate) fn keep_copy(&self, id: TensorId, tensor: &Bound<'_, PyAny>) {
        self.copies.discard(id);
        if !self.monitor.collecting() || self.monitor.request(Kind::Update).is_none() {
            return;
        }
        if !self.monitor.wants(id, Kind::Update) {
            self.monitor.leave_out(Kind::Update);
            return;
        }
        let Some(tensor) = self.describe(Label::new(id, Kind::Update), tensor) else { return };
        self.told(Label::new(id, Kind::Update), self.copies.keep(&self.monitor, id, &tensor));
    }

    /// Records what changed since the copy.
    pub(crate) fn observe_update(&self, id: TensorId, tensor: &Bound<'_, PyAny>) {
        if self.monitor.request(Kind::Update).is_none() || !self.copies.has(id) {
            return;
        }
        let start = Instant::now();
        let label = Label::new(id, Kind::Update);
        let Some(tensor) = self.describe(label, tensor) else { return };
        let change = self.told(label, self.copies.measure_change(&self.monitor, id, &tensor));
        if let Some(Change { update, ratio }) = change.flatten() {
            self.record(label, update, start, 3 * tensor.layout.bytes());
            let label = Label { kind: Kind::UpdateRatio, ..label };
            self.record(label, Reading::of_values(&[ratio]), Instant::now(), 0);
        }
    }

    /// The factor, if it is one; what is not is counted and told here.
    fn factor(&self, label: Label, factor: f64) -> Option<Factor> {
        let checked = Factor::new(factor);
        if checked.is_none() {
            let why = format!("its values are meant times {factor}, which no loss scale gives");
            self.monitor.observe_unsupported(label.tensor, label.kind, &why);
        }
        checked
    }

    /// Where the tensor lies. What cannot be measured is counted and told here.
    fn describe<'a, 'py>(&self, label: Label, tensor: &'a Bound<'py, PyAny>) -> Option<HostTensor<'a, 'py>> {
        if tensor.is_none() {
            self.monitor.observe_missing(label.tensor, label.kind, label.micro_step);
            return None;
        }
        self.told(label, HostTensor::describe(tensor))
    }

    /// Measures a tensor and records its reading times the factor. Gives the reading of the tensor as it is, and what was
    /// asked for.
    fn read(
        &self,
        label: Label,
        tensor: &HostTensor<'_, '_>,
        factor: Factor,
        start: Instant,
    ) -> Option<(TensorStats, Request)> {
        let mut as_it_is = None;
        let read = |request| {
            let asked = factor.request(request);
            let reading = tensor.read(|view| measure(view, asked))?;
            as_it_is = Some(reading);
            Ok::<_, Unreadable>(factor.scale(reading))
        };
        let (reading, request) = self.monitor.observe_with(label, start, tensor.layout.bytes() as u64, read)?;
        self.latest.remember(self.monitor.step(), label, request.statistics, reading.into());
        Some((as_it_is?, request))
    }

    /// What was found; why nothing was is counted and told here.
    fn told<T>(&self, label: Label, found: Result<T, impl Display>) -> Option<T> {
        found.map_err(|why| self.monitor.observe_unsupported(label.tensor, label.kind, &why.to_string())).ok()
    }
}

fn signals(config: &Config) -> impl Iterator<Item = &Signal> {
    Kind::ALL.into_iter().filter_map(|kind| config.signal(kind))
}

fn norm(request: Request, reading: TensorStats) -> Option<f64> {
    request.statistics.contains(Statistic::Norm).then_some(reading.norm)
}
