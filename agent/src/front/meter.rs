//! The measurement of tensors for all fronts.

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

/// The label of a tensor and the way to read it.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The label of its record.
    pub label: Label,
    /// The factor for every value, 1 / loss scale.
    pub factor: f64,
    /// Whether torch counts all writes to the tensor, so that a reading may be reused until the next write.
    pub may_be_known: bool,
}

impl Shown {
    /// A tensor that is always read, with its values unchanged.
    pub fn new(label: Label) -> Self {
        Self { label, factor: 1.0, may_be_known: false }
    }
}

/// A reading and the statistics that were requested.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The requested statistics. Other fields of the reading are meaningless.
    pub statistics: StatisticSet,
    /// The reading, multiplied by the factor.
    pub reading: TensorStats,
}

impl Measured {
    /// The norm, if it was requested.
    pub fn norm(&self) -> Option<f64> {
        self.statistics.contains(Statistic::Norm).then_some(self.reading.norm)
    }
}

/// Measures and records the tensors of a front.
///
/// Every method first checks whether the tensor is measured in this step. Only then does the front locate its memory. An
/// unreadable tensor is counted, and each reason is logged once.
pub struct Meter {
    monitor: Monitor,
    known: Known,
    copies: Copies,
    latest: Option<LatestReadings>,
}

impl Meter {
    /// A meter that stores only the readings that it may reuse.
    pub fn new(monitor: Monitor) -> Self {
        Self { monitor, known: Known::default(), copies: Copies::default(), latest: None }
    }

    /// Also stores the latest readings, for scripts that query them during a step. Cost: about 250 bytes per tensor and
    /// kind, and about 50 ns per reading.
    #[must_use]
    pub fn with_latest(self) -> Self {
        Self { latest: Some(LatestReadings::default()), ..self }
    }

    /// The monitor.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// The latest readings, if they are stored.
    pub fn latest(&self) -> Option<&LatestReadings> {
        self.latest.as_ref()
    }

    /// Measures a tensor and records it. `None` if it is not measured now, or its reading is not available yet.
    ///
    /// Cost: one pass over the tensor. If its last reading may be reused, only about 64 elements are read, to detect writes
    /// that torch did not count.
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

    /// Forces the next measurement of this tensor, in any kind of its family, to read it.
    pub fn forget(&self, label: Label) {
        if let Some(family) = Family::of(label.kind) {
            self.known.forget(label.tensor, family);
        }
    }

    /// Measures tensors in parallel and records them. An unreadable tensor is counted and logged; the others are measured.
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
            // The first record gets the time of all.
            let cost = (start, view.size_in_bytes() as u64);
            let read = |now| if now == request { reading } else { measure(&view, now) };
            if let Some((reading, request)) = self.monitor.record_read(label, request, cost, read) {
                self.remember(label, request.statistics, reading.into());
            }
            start = Instant::now();
        }
    }

    /// Records this step's reading of the tensor `of` for `label`. Returns false if there is none, or if the latest readings
    /// are not stored.
    pub fn repeat(&self, label: Label, of: TensorId) -> bool {
        let start = Instant::now();
        let in_step = |latest: &LatestReadings| latest.in_step(label.kind, of, self.monitor.step());
        let Some(reading) = self.latest.as_ref().and_then(in_step) else { return false };
        self.record(label, reading, start, 0);
        true
    }

    /// Records a reading made elsewhere, if its kind is measured. Its cost is the time since `start`.
    pub fn record(&self, label: Label, reading: impl Into<Reading>, start: Instant, bytes_read: u64) {
        let Some(request) = self.monitor.request(label.kind) else { return };
        let reading = reading.into();
        self.remember(label, request.statistics, reading);
        self.monitor.record(label.with(reading), start.elapsed(), bytes_read);
    }

    /// Withdraws records as [`Monitor::retract`] does. Without `keep_last`, also removes the latest readings.
    pub fn retract(&self, kind: Kind, tensors: &[TensorId], keep_last: bool) {
        if let Some(latest) = self.latest.as_ref().filter(|_| !keep_last) {
            latest.forget(kind, tensors);
        }
        self.monitor.retract(kind, tensors, keep_last);
    }

    /// Copies a parameter if updates are measured in this step. Cost: one pass, and memory for the first copy.
    pub fn keep_copy<T: Readable, E: Display>(&self, id: TensorId, find: impl FnOnce() -> Result<Found<T>, E>) {
        self.copies.discard(id);
        let label = Label::new(id, Kind::Update);
        if !self.monitor.collecting() || self.monitor.request_now(label).is_none() {
            return;
        }
        let start = Instant::now();
        // For a tensor on a device, `find` makes the copy.
        if let Some(tensor) = self.found(label, find())
            && let Some(view) = self.told(label, tensor.view())
        {
            self.copies.with(id, |copy| tensor.run(view.elements(), || copy.fill(&view)));
        }
        self.monitor.add_cost(Phase::Measure, start.elapsed());
    }

    /// Discards the copy of a parameter that the step does not change.
    pub fn discard_copy(&self, id: TensorId) {
        self.copies.discard(id);
    }

    /// Records the change since the copy, and the ratio of its norm to the parameter's. Discards the copy.
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

    /// Records the change since the copy. Returns the ratio of its norm to the parameter's.
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

    /// The factor, if it is valid. Otherwise counts and logs the tensor.
    fn factor(&self, shown: Shown) -> Option<Factor> {
        let why = || format!("its factor (1 / loss scale) is {}, not a finite number above 0", shown.factor);
        self.told(shown.label, Factor::new(shown.factor).ok_or_else(why))
    }

    /// The tensor, if it is in host memory. Counts missing and unreadable tensors.
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

    /// The value. For an error, counts the tensor and logs the reason.
    fn told<T>(&self, label: Label, found: Result<T, impl Display>) -> Option<T> {
        found.map_err(|why| self.monitor.observe_unsupported(label.tensor, label.kind, &why.to_string())).ok()
    }
}
