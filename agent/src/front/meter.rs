//! The one way a tensor gets measured, whatever shows it.

use std::fmt::Display;
use std::time::Instant;

use trainmon_core::{Kind, Phase, Reading, Statistic, StatisticSet, TensorId, TensorStats};
use trainmon_stats::{Request, measure, measure_all};

use super::copies::Copies;
use super::factor::Factor;
use super::known::{Contents, Family, Known};
use super::{Found, LatestReadings, Readable, Snapshot};
use crate::label::Label;
use crate::monitor::Monitor;

/// What is shown, and how.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The record it becomes.
    pub label: Label,
    /// What every value is meant to be multiplied by: 1 / loss scale.
    pub factor: f64,
    /// Whether nobody writes the tensor behind torch's back: a reading of it that still holds is used again.
    pub may_be_known: bool,
}

impl Shown {
    /// Read anew, its values as they are.
    pub fn new(label: Label) -> Self {
        Self { label, factor: 1.0, may_be_known: false }
    }
}

/// What was measured: the reading, and the statistics that it was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Its other fields mean nothing.
    pub statistics: StatisticSet,
    /// The reading, times the factor.
    pub reading: TensorStats,
}

impl Measured {
    /// The norm, if it was asked for.
    pub fn norm(&self) -> Option<f64> {
        self.statistics.contains(Statistic::Norm).then_some(self.reading.norm)
    }
}

/// Measures what a front shows, and records it.
///
/// Every method asks first whether the tensor is measured in this step: only then the front looks for its memory. What
/// cannot be read is counted, and told once per reason.
pub struct Meter {
    monitor: Monitor,
    known: Known,
    copies: Copies,
    latest: Option<LatestReadings>,
}

impl Meter {
    /// A meter that remembers no more than a tensor's last reading.
    pub fn new(monitor: Monitor) -> Self {
        Self { monitor, known: Known::default(), copies: Copies::default(), latest: None }
    }

    /// Remembers the latest readings too, for a script that asks in the middle of a step: some 250 bytes per tensor and
    /// kind, and some 50 ns per reading.
    #[must_use]
    pub fn with_latest(self) -> Self {
        Self { latest: Some(LatestReadings::default()), ..self }
    }

    /// The monitor.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// The latest readings, if they are remembered.
    pub fn latest(&self) -> Option<&LatestReadings> {
        self.latest.as_ref()
    }

    /// Measures a tensor and records it. `None` if it is not measured now, or no reading of it is at hand.
    ///
    /// Cost: one pass over the tensor. One that may be known and was not written since is not read: some 64 elements are
    /// looked at, for writes that torch did not count.
    pub fn measure<T: Readable, E: Display>(
        &self,
        shown: Shown,
        find: impl FnOnce() -> Result<Found<T>, E>,
    ) -> Option<Measured> {
        let start = Instant::now();
        let Shown { label, .. } = shown;
        let request = self.monitor.request_now(label)?;
        let factor = self.factor(shown)?;
        let tensor = self.found(label, find())?;
        let view = self.told(label, tensor.view())?;
        let family = Family::of(label.kind).filter(|_| shown.may_be_known);
        let contents = family.and_then(|family| Contents::of(&view, tensor.version(), family, self.monitor.step()));
        let key = family.zip(contents);
        let recall =
            |(family, contents): &_| self.known.recall(label.tensor, *family, contents, factor.request(request));
        let known = key.as_ref().and_then(recall);
        let bytes = if known.is_some() { 0 } else { view.size_in_bytes() as u64 };
        let mut as_it_is = None;
        let (reading, request) = self.monitor.record_read(label, request, (start, bytes), |now| {
            let read = || tensor.run(view.elements(), || measure(&view, factor.request(now)));
            let reading = known.filter(|_| now == request).unwrap_or_else(read);
            as_it_is = Some(reading);
            factor.scale(reading)
        })?;
        self.remember(label, request.statistics, reading.into());
        match (key, as_it_is) {
            (Some((family, contents)), Some(as_it_is)) => {
                self.known.remember(label.tensor, family, contents, factor.request(request), as_it_is);
            }
            _ => self.forget(label),
        }
        Some(Measured { statistics: request.statistics, reading })
    }

    /// The next reading of this tensor, and of the kinds that show it at other moments, is taken anew.
    pub fn forget(&self, label: Label) {
        if let Some(family) = Family::of(label.kind) {
            self.known.forget(label.tensor, family);
        }
    }

    /// Measures tensors side by side and records them. One that cannot be measured is counted and told; the others are.
    pub fn measure_all<T: Readable, E: Display, F>(&self, shown: impl Iterator<Item = (Label, F)>)
    where
        F: FnOnce() -> Result<Found<T>, E>,
    {
        let mut start = Instant::now();
        let wanted = shown.filter_map(|(label, find)| {
            let request = self.monitor.request_now(label)?;
            Some((label, request, self.found(label, find())?))
        });
        let there: Vec<(Label, Request, T)> = wanted.collect();
        let views: Vec<_> = there
            .iter()
            .filter_map(|(label, request, tensor)| Some((*label, *request, self.told(*label, tensor.view())?)))
            .collect();
        let Some((_, _, first)) = there.first() else { return };
        let asked: Vec<_> = views.iter().map(|&(_, request, view)| (view, request)).collect();
        let readings = first.run(views.iter().map(|(.., view)| view.elements()).sum(), || measure_all(&asked));
        for ((label, request, view), reading) in views.into_iter().zip(readings) {
            // The first bears the time of all.
            let cost = (start, view.size_in_bytes() as u64);
            let read = |now| if now == request { reading } else { measure(&view, now) };
            if let Some((reading, request)) = self.monitor.record_read(label, request, cost, read) {
                self.remember(label, request.statistics, reading.into());
            }
            start = Instant::now();
        }
    }

    /// Records for a label the reading that another tensor of its kind got in this step; false if there is none, or the
    /// latest are not remembered.
    pub fn repeat(&self, label: Label, of: TensorId) -> bool {
        let start = Instant::now();
        let in_step = |latest: &LatestReadings| latest.in_step(label.kind, of, self.monitor.step());
        let Some(reading) = self.latest.as_ref().and_then(in_step) else { return false };
        self.record(label, reading, start, 0);
        true
    }

    /// Records a reading made elsewhere, if its kind is measured. The time since `start` is booked with it.
    pub fn record(&self, label: Label, reading: impl Into<Reading>, start: Instant, bytes_read: u64) {
        let Some(request) = self.monitor.request(label.kind) else { return };
        let reading = reading.into();
        self.remember(label, request.statistics, reading);
        self.monitor.record(label.with(reading), start.elapsed(), bytes_read);
    }

    /// As [`Monitor::retract`]; a reading that is taken back is nobody's latest either.
    pub fn retract(&self, kind: Kind, tensors: &[TensorId], keep_last: bool) {
        if let Some(latest) = self.latest.as_ref().filter(|_| !keep_last) {
            latest.forget(kind, tensors);
        }
        self.monitor.retract(kind, tensors, keep_last);
    }

    /// Keeps a copy of a parameter, if updates are measured in this step. Cost: one pass; memory for the copy the first time.
    pub fn keep_copy<T: Readable, E: Display>(&self, id: TensorId, find: impl FnOnce() -> Result<Found<T>, E>) {
        self.copies.discard(id);
        let label = Label::new(id, Kind::Update);
        if !self.monitor.collecting() || self.monitor.request_now(label).is_none() {
            return;
        }
        let start = Instant::now();
        // A front copies what lies on a device while it looks for it.
        if let Some(tensor) = self.found(label, find())
            && let Some(view) = self.told(label, tensor.view())
        {
            self.copies.with(id, |copy| tensor.run(view.elements(), || copy.fill(&view)));
        }
        self.monitor.add_cost(Phase::Measure, start.elapsed());
    }

    /// Drops the copy of a parameter that the step does not change.
    pub fn discard_copy(&self, id: TensorId) {
        self.copies.discard(id);
    }

    /// Records what changed since the copy, and its norm over the parameter's. Uses the copy up.
    pub fn measure_change<T: Readable, E: Display>(&self, id: TensorId, find: impl FnOnce() -> Result<Found<T>, E>) {
        if !self.copies.has(id) {
            return;
        }
        let label = Label::new(id, Kind::Update);
        let ratio = self.copies.with(id, |copy| {
            let ratio = self.change_since(copy, label, find);
            copy.discard();
            ratio
        });
        if let Some(ratio) = ratio {
            self.record(Label { kind: Kind::UpdateRatio, ..label }, Reading::of_values(&[ratio]), Instant::now(), 0);
        }
    }

    /// Records what changed since the copy; its norm over the parameter's.
    fn change_since<T: Readable, E: Display>(
        &self,
        copy: &Snapshot,
        label: Label,
        find: impl FnOnce() -> Result<Found<T>, E>,
    ) -> Option<f64> {
        let request = self.monitor.request(label.kind)?;
        let start = Instant::now();
        let tensor = self.found(label, find())?;
        let after = self.told(label, tensor.view())?;
        let change = |asked| tensor.run(after.elements(), || copy.change(&after, asked));
        let first = self.told(label, change(request))?;
        let cost = (start, 3 * after.size_in_bytes() as u64);
        let read =
            |now| if now == request { first.update } else { change(now).map_or(first.update, |again| again.update) };
        let (update, request) = self.monitor.record_read(label, request, cost, read)?;
        self.remember(label, request.statistics, update.into());
        Some(first.ratio)
    }

    fn remember(&self, label: Label, statistics: StatisticSet, reading: Reading) {
        if let Some(latest) = &self.latest {
            latest.remember(self.monitor.step(), label, statistics, reading);
        }
    }

    /// The factor, if it is one; what is not is counted and told here.
    fn factor(&self, shown: Shown) -> Option<Factor> {
        let why = || format!("its values are meant times {}, which no loss scale gives", shown.factor);
        self.told(shown.label, Factor::new(shown.factor).ok_or_else(why))
    }

    /// What lies in host memory. What is missing or cannot be read is counted here.
    fn found<T, E: Display>(&self, label: Label, found: Result<Found<T>, E>) -> Option<T> {
        match self.told(label, found)? {
            Found::Here(tensor) => Some(tensor),
            Found::Queued => None,
            Found::Missing => {
                self.monitor.observe_missing(label.tensor, label.kind, label.micro_step);
                None
            }
        }
    }

    /// What was found; why nothing was is counted and told here.
    fn told<T>(&self, label: Label, found: Result<T, impl Display>) -> Option<T> {
        found.map_err(|why| self.monitor.observe_unsupported(label.tensor, label.kind, &why.to_string())).ok()
    }
}
